"""GUIDs: the MD5 of a schema and all that is registered with it, written as a UUID."""

from collections.abc import Iterable
from hashlib import md5
from uuid import UUID

from ottla.registry.schemas.schema import Reference
from ottla.registry.state.metadata import Metadata, RuleSet


def schema_digest(
    text: str, references: Iterable[Reference], metadata: Metadata | None, rule_set: RuleSet | None
) -> bytes:
    """The 16 bytes of a schema's GUID.

    Equal schemas have equal digests in every context and registry. The type is not part of it, as in Confluent's
    registry.
    """
    digest = md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode())
        digest.update(reference.subject.encode())
        digest.update((reference.version & 0xFFFFFFFF).to_bytes(4, "big"))
    if metadata is not None:
        digest.update(b"\x01" + "".join(_metadata_parts(metadata)).encode())
    if rule_set is not None:
        digest.update(b"\x01" + "".join(_rule_set_parts(rule_set)).encode())
    return digest.digest()


def guid_of(digest: bytes) -> str:
    """The digest as a GUID."""
    return str(UUID(bytes=digest))


def digest_of(guid: str) -> bytes | None:
    """The digest of a GUID, written with or without dashes; None if it is not a GUID."""
    try:
        return UUID(guid).bytes
    except ValueError:
        return None


def _metadata_parts(metadata: Metadata) -> Iterable[str]:
    for path, tags in (metadata.tags or {}).items():
        yield path
        yield from tags
    for name, text in metadata.texts.items():
        yield name
        yield text
    yield from metadata.sensitive or ()


def _rule_set_parts(rule_set: RuleSet) -> Iterable[str]:
    for rule in rule_set.rules:
        for part in (rule.name, rule.doc, rule.kind, rule.mode, rule.type):
            yield part or ""
        yield from rule.tags or ()
        for name, value in (rule.params or {}).items():
            yield name
            yield str(value)
        for part in (rule.expr, rule.on_success, rule.on_failure):
            yield part or ""
        if rule.disabled:
            yield "\x01"
    yield rule_set.enable_at or ""
