"""Checks that are done apart from the image: what they compare, and what the request after them still has to do."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ottla.registry.schemas.parsed_schema import Incompatibility, Language, ParsedSchema
from ottla.registry.state import compatibility_checks, configs, lookups, registrations, schema_checks
from ottla.registry.state.registry_image import RegistryImage
from ottla.registry.state.requests import ConfigUpdate, SchemaRequest
from tests.unit.registry.state.refusals import refusal, refused_with
from tests.unit.registry.state.tiny_language import TinySchema, parse, schema

LONG = "x" * 5_000


class Counted(TinySchema):
    """Notes which schemas are compared."""

    pairs: list[tuple[str, str]]

    def incompatibilities(self, writer: ParsedSchema) -> Sequence[Incompatibility]:
        self.pairs.append((self.canonical_text, writer.canonical_text))
        return super().incompatibilities(writer)


class Counting:
    """A registry with one subject, and the comparisons that were made."""

    def __init__(self, level: str) -> None:
        self.pairs: list[tuple[str, str]] = []
        self.parsed: list[str] = []
        self.image = RegistryImage({"AVRO": Language(self._parse, self._parse)})
        self.commit(configs.update_config(self.image, "s", ConfigUpdate(compatibility=level)))

    def _parse(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        self.parsed.append(text)
        found = parse(text, references)
        assert isinstance(found, TinySchema)
        counted = Counted(found._content, references)
        counted.pairs = self.pairs
        return counted

    def commit(self, decision: Any) -> None:
        for record in decision.records:
            assert self.image.apply(record, 0) is None

    def register(self, text: str) -> None:
        self.commit(registrations.register(self.image, "s", SchemaRequest(schema=text)))

    def check(self, text: str) -> int:
        """Does the check of a registration; returns the number of its pieces."""
        check = schema_checks.registration_check(self.image, "s", SchemaRequest(schema=text))
        assert check is not None
        return len(list(check.pieces()))


def optional(*names: str) -> str:
    return schema(*(f"{name}?" for name in names), doc=LONG)


def test_a_registration_after_its_check_compares_only_newer_versions() -> None:
    registry = Counting("BACKWARD_TRANSITIVE")
    for number in range(5):
        registry.register(optional("a", f"b{number}"))
    registry.pairs.clear()
    new = optional("a", "new")
    assert 1 + 5 == registry.check(new)
    assert 5 == len(registry.pairs)
    registry.register(optional("a", "meanwhile"))
    registry.pairs.clear()
    registry.register(new)
    assert [(new, optional("a", "meanwhile"))] == registry.pairs


def test_a_look_up_after_its_check_parses_nothing() -> None:
    registry = Counting("BACKWARD")
    registry.register(optional("a"))
    request = SchemaRequest(schema=optional("b"))
    check = schema_checks.look_up_check(registry.image, "s", request)
    assert check is not None
    assert 1 == len(list(check.pieces()))
    registry.parsed.clear()
    assert 40403 == refused_with(lambda: lookups.look_up(registry.image, "s", request))
    assert [] == registry.parsed


def test_a_schema_that_is_registered_is_not_compared() -> None:
    registry = Counting("BACKWARD_TRANSITIVE")
    for number in range(3):
        registry.register(optional(f"b{number}"))
    registry.pairs.clear()
    registry.check(optional("b1"))
    registry.register(optional("b1"))
    assert [] == registry.pairs


def test_a_compatibility_check_compares_before_its_request() -> None:
    registry = Counting("FULL")
    for number in range(3):
        registry.register(optional(f"b{number}"))
    request = SchemaRequest(schema=schema("z", doc=LONG))
    registry.pairs.clear()
    for version, pairs in ((None, 2), ("1", 2)):
        check = schema_checks.compatibility_check(registry.image, "s", version, request)
        assert check is not None
        list(check.pieces())
        assert pairs == len(registry.pairs)
        registry.pairs.clear()
    assert not compatibility_checks.check_against_subject(registry.image, "s", request).is_compatible
    assert not compatibility_checks.check_against_version(registry.image, "s", "1", request).is_compatible
    assert [] == registry.pairs


def test_small_schemas_need_no_check() -> None:
    registry = Counting("FULL_TRANSITIVE")
    registry.register(schema("a?"))
    assert schema_checks.registration_check(registry.image, "s", SchemaRequest(schema=schema("b?"))) is None


def test_an_invalid_schema_is_refused_by_the_check_of_a_registration_alone() -> None:
    registry = Counting("FULL")
    request = SchemaRequest(schema="{" + LONG)
    check = schema_checks.registration_check(registry.image, "s", request)
    assert check is not None
    assert 42201 == refused_with(lambda: list(check.pieces()))
    asked = schema_checks.compatibility_check(registry.image, "s", None, request)
    assert asked is not None
    assert [] == list(asked.pieces())


def test_a_request_without_a_check_does_not_compare_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Counting("BACKWARD_TRANSITIVE")
    for number in range(5):
        registry.register(optional(f"b{number}"))
    monkeypatch.setattr(compatibility_checks, "_COMPARED_CHARACTERS_MAX", 3 * len(LONG))
    status, code, message = refusal(lambda: registry.register(optional("new")))
    assert (422, 42209) == (status, code)
    assert "not transitive" in message
    registry.check(optional("new"))
    registry.register(optional("new"))
