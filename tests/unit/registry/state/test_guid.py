"""GUIDs as Confluent's registry computes them; version 8.5 answered these."""

import pytest

from ottla.registry.schemas.schema import Reference
from ottla.registry.state.guid import digest_of, guid_of, schema_digest
from ottla.registry.state.metadata import Metadata, Rule, RuleSet

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
REFERRING = '{"type":"record","name":"S","fields":[{"name":"r","type":"R"}]}'


@pytest.mark.parametrize(
    ("text", "references", "metadata", "guid"),
    [
        ('"string"', (), None, "095d71cf-1255-6b9d-5e33-0ad575b3df5d"),
        (RECORD, (), None, "e4d94c3f-c345-bad6-d759-ac6f42ea94f7"),
        (REFERRING, (Reference("R", "d1xa", 1),), None, "0584c516-60c6-de5b-de6b-34dfbc99d4e9"),
        (
            '"string"',
            (),
            Metadata(properties={"owner": "me", "confluent:version": "1"}),
            "8aae6478-417f-a573-12f6-603bfb8c37df",
        ),
        ('"int"', (), Metadata(properties={"confluent:version": "1"}), "9dd4917f-f869-3a34-8c90-f3f5adc886f5"),
    ],
)
def test_equal_to_confluents(
    text: str, references: tuple[Reference, ...], metadata: Metadata | None, guid: str
) -> None:
    assert guid == guid_of(schema_digest(text, references, metadata, None))


def test_order_of_properties_and_tags_does_not_matter_but_everything_else_does() -> None:
    one = Metadata(tags={"a": ["x", "y"], "b": ["z"]}, properties={"p": "1", "q": True}, sensitive=["q", "p"])
    other = Metadata(tags={"b": ["z"], "a": ["y", "x", "y"]}, properties={"q": "true", "p": 1}, sensitive=["p", "q"])
    assert schema_digest("", (), one, None) == schema_digest("", (), other, None)
    rule = Rule(name="r", type="CEL")
    digests = [
        schema_digest("", (), None, None),
        schema_digest("", (), Metadata(), None),
        schema_digest("", (), one, None),
        schema_digest("", (), None, RuleSet(domain_rules=[rule])),
        schema_digest("", (), None, RuleSet(domain_rules=[Rule(name="r", type="CEL", disabled=True)])),
        schema_digest("", (), None, RuleSet(domain_rules=[Rule(name="r", type="CEL", mode="READ")])),
        schema_digest("", (Reference("a", "b", 1),), None, None),
        schema_digest("", (Reference("a", "b", 2),), None, None),
    ]
    assert len(digests) == len(set(digests))


def test_java_sorts_strings_by_utf_16() -> None:
    metadata = Metadata(properties={"\uffee": "circle", "\U0001f600": "face"})
    assert ["\U0001f600", "\uffee"] == list(metadata.texts)


def test_guids_are_read_with_and_without_dashes() -> None:
    digest = schema_digest('"string"', (), None, None)
    assert digest == digest_of("095d71cf-1255-6b9d-5e33-0ad575b3df5d") == digest_of("095d71cf12556b9d5e330ad575b3df5d")
    assert digest_of("095d71cf") is None
