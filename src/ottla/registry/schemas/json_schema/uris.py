"""URIs of schemas: what a `$ref` or an `$id` means in a document with another URI (RFC 3986, section 5)."""

from typing import Final
from urllib.parse import urljoin, urlsplit

from ottla.registry.schemas.parsed_schema import InvalidSchemaError

_STAND_IN: Final = "http"


def resolve_uri(base: str, reference: str) -> str:
    """The URI that `reference` means inside a document whose URI is `base`; "" is a document without a URI."""
    if not base or reference.startswith("#"):
        return f"{without_fragment(base)}{reference}"
    try:
        if urlsplit(reference).scheme:
            return reference
        scheme = urlsplit(base).scheme
        if not scheme:
            return urljoin(base, reference)
        if not base.startswith(f"{scheme}:/"):
            return reference  # an opaque URI, such as urn:x:y, has no folders
        # Python joins URIs of well-known schemes only.
        joined = urljoin(f"{_STAND_IN}{base[len(scheme) :]}", reference)
        return f"{scheme}{joined.removeprefix(_STAND_IN)}"
    except ValueError as error:
        raise InvalidSchemaError(f"not a valid URI: {reference!r} ({error})") from None


def without_fragment(uri: str) -> str:
    """The URI of the document."""
    return uri.partition("#")[0]


def fragment_of(uri: str) -> str:
    """What follows the `#`: a JSON pointer, an anchor or ""."""
    return uri.partition("#")[2]
