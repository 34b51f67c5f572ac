"""The expensive part of a registration or a compatibility check: parsing and comparing, apart from the image.

A `SchemaCheck` is taken from the image at once, and done piece by piece while the image changes and other requests are
served. What it finds is remembered (`parsed_schemas.py`, `comparisons.py`). The request that is decided after it only
has to compare versions that were registered meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from ottla.registry.state.candidates import Candidate, resolve_references
from ottla.registry.state.comparisons import SchemaText
from ottla.registry.state.compatibility_checks import Compared, compared_versions, conflicts
from ottla.registry.state.errors import RegistryError, invalid_schema
from ottla.registry.state.lookups import parse_version
from ottla.registry.state.merging import merged_with_defaults
from ottla.registry.state.parsed_schemas import ParsedSchemas
from ottla.registry.state.record_formats import CompatibilityLevel, Config
from ottla.registry.state.registry_image import RegistryImage, StoredSchema
from ottla.registry.state.requests import SchemaRequest
from ottla.registry.state.scopes import actual_subject, config_in_scope, is_importing, mode_in_scope

_CHEAP_CHARACTERS: Final = 4096
"""Less text is parsed and compared fast enough where it is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCheck:
    """What must be parsed and compared for one request."""

    schemas: ParsedSchemas
    candidate: SchemaText
    versions: Sequence[SchemaText]
    """Those to compare with, the newest first."""
    level: CompatibilityLevel
    is_lenient: bool
    is_new: bool
    normalize: bool
    is_registration: bool
    known_texts: frozenset[str] = frozenset()
    """Of versions that are the candidate if it has the same text: then nothing is compared."""

    def pieces(self) -> Iterator[None]:
        """Does the work, and yields after each piece of it.

        Raises a `RegistryError` (42201) for a registration whose schema is not valid, whatever the image has.
        """
        try:
            text = self._parse()
        except (InvalidSchemaError, RegistryError) as error:
            if self.is_registration and not self.candidate.references:
                raise error if isinstance(error, RegistryError) else invalid_schema(str(error)) from error
            return
        yield
        if text in self.known_texts:
            return
        new = Compared.of(SchemaText(self.candidate.type, text, self.candidate.references), self.schemas)
        for old in self.versions:
            try:
                found = conflicts(
                    self.schemas, self.level, new, Compared.of(old, self.schemas), lenient=self.is_lenient
                )
            except RegistryError:
                return  # the version cannot be parsed, as the request will find out
            yield
            if found:
                break
        # The versions may have displaced it from the parsed schemas.
        self._parse()

    def _parse(self) -> str:
        """The text that would be stored."""
        candidate = self.candidate
        parsed = self.schemas.parse(candidate.type, candidate.text, candidate.references, new=self.is_new)
        if not self.normalize:
            return parsed.canonical_text
        text = parsed.normalized_text()
        self.schemas.parse(candidate.type, text, candidate.references, new=self.is_new)
        return text


def registration_check(
    image: RegistryImage, subject: str, request: SchemaRequest, *, normalize: bool = False, force: bool = False
) -> SchemaCheck | None:
    """The check of POST /subjects/{subject}/versions; None if it is cheap, or if it cannot be known now."""
    subject = actual_subject(image, subject)
    config = config_in_scope(image, subject)
    has_tags = request.schema_tags_to_add or request.schema_tags_to_remove or request.propagate_schema_tags
    if has_tags or is_importing(mode_in_scope(image, subject)):
        return None
    versions = [each for each in image.versions(subject) if not each.deleted]
    candidate = merged_with_defaults(config, Candidate.of(request), versions[-1] if versions else None)
    check = _check(
        image, subject, config, candidate, [] if force else versions, normalize=normalize, is_registration=True
    )
    if check is None:
        return None
    known = (each for each in versions if (each.metadata, each.rule_set) == (candidate.metadata, candidate.rule_set))
    return replace(check, known_texts=frozenset(each.text for each in known))


def compatibility_check(
    image: RegistryImage, subject: str, version: str | None, request: SchemaRequest, *, normalize: bool = False
) -> SchemaCheck | None:
    """The check of POST /compatibility/…, against one version or as for a registration; None if it is cheap."""
    subject = actual_subject(image, subject)
    if version is None:
        versions = [each for each in image.versions(subject) if not each.deleted]
    else:
        found = image.version(subject, parse_version(version))
        versions = [] if found is None else [found]
    config = config_in_scope(image, subject)
    return _check(image, subject, config, Candidate.of(request), versions, normalize=normalize, is_registration=False)


def look_up_check(
    image: RegistryImage, subject: str, request: SchemaRequest, *, normalize: bool = False
) -> SchemaCheck | None:
    """The check of POST /subjects/{subject}: the schema is parsed, as one that is registered; None if it is cheap."""
    subject = actual_subject(image, subject)
    config, candidate = config_in_scope(image, subject), Candidate.of(request)
    check = _check(image, subject, config, candidate, [], normalize=normalize, is_registration=False)
    return None if check is None else replace(check, is_new=False)


def _check(
    image: RegistryImage,
    subject: str,
    config: Config,
    candidate: Candidate,
    versions: Sequence[StoredSchema],
    *,
    normalize: bool,
    is_registration: bool,
) -> SchemaCheck | None:
    if candidate.is_empty:
        return None
    level = config.compatibility_level or image.options.compatibility_level
    chosen = compared_versions(config, level, candidate, versions)
    if len(candidate.text) + sum(len(each.text) for each in chosen) < _CHEAP_CHARACTERS:
        return None
    is_new = image.options.validate_new_schemas if config.validate_new_schemas is None else config.validate_new_schemas
    olds = []
    try:
        _, texts = resolve_references(image, subject, candidate.references, deleted=not is_new)
        for each in chosen:
            if each.type != candidate.type:
                break  # incompatible, without a comparison
            _, referenced = resolve_references(image, each.subject, each.references, deleted=True)
            olds.append(SchemaText(each.type, each.text, referenced))
    except RegistryError:
        return None
    return SchemaCheck(
        schemas=image.schemas,
        candidate=SchemaText(candidate.type, candidate.text, texts),
        versions=olds,
        level=level,
        is_lenient=config.compatibility_policy == "LENIENT",
        is_new=is_new,
        normalize=normalize or config.normalize is True,
        is_registration=is_registration,
    )
