"""Avro's Java library judges our parser, our canonical texts and our compatibility checker on random schemas.

OTTLA_SCHEMA_SEEDS sets how many schemas are compared (400 by default, which take seconds).
"""

import json
import os
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from ottla.registry.schemas.avro.avro_schema import parse, parse_new
from ottla.registry.schemas.parsed_schema import InvalidSchemaError
from tests.compat.registry.avro_generation import SchemaSource, changed, text_of
from tests.compat.registry.avro_java import Answer, AvroJava, avro_java

SEEDS: Final = int(os.environ.get("OTTLA_SCHEMA_SEEDS", "400"))


@pytest.fixture(scope="module")
def java() -> Iterator[AvroJava]:
    with avro_java() as running:
        yield running


def test_the_same_texts_are_valid_and_have_the_same_canonical_text(java: AvroJava) -> None:
    differences: dict[int, Any] = {}
    valid = 0
    for seed in range(SEEDS):
        random = Random(seed)
        text = text_of(SchemaSource(random, wild=seed % 2 == 0).schema(), random)
        for is_new in (True, False):
            theirs = java.text(text, is_new=is_new)
            valid += theirs.text is not None
            ours = our_text(text, is_new=is_new)
            if theirs.text != ours.text and not accepted_only_here(theirs):
                differences[seed] = (text, theirs, ours)
    assert {} == differences
    assert valid > SEEDS


def test_the_same_pairs_are_compatible_and_the_others_break_at_the_same_places(java: AvroJava) -> None:
    differences: dict[int, Any] = {}
    kinds: set[str] = set()
    compatible = 0
    for seed in range(SEEDS):
        random = Random(seed)
        source = SchemaSource(random)
        one = source.schema()
        other = changed(one, random) if seed % 5 else source.schema()
        for reader, writer in ((one, other), (other, one)):
            theirs = java.incompatibilities(json.dumps(reader), json.dumps(writer))
            ours = our_incompatibilities(json.dumps(reader), json.dumps(writer))
            compatible += theirs.text == ""
            kinds.update(line.split()[0] for line in (theirs.text or "").splitlines())
            if theirs.text != ours.text and not is_ambiguous(theirs, ours):
                differences[seed] = (reader, writer, theirs, ours)
    assert {} == differences
    assert SEEDS // 3 < compatible < 2 * SEEDS
    assert 6 == len(kinds) or SEEDS < 400


def test_references(java: AvroJava) -> None:
    for seed in range(SEEDS // 4):
        random = Random(seed)
        reference = SchemaSource(random).schema()
        try:
            name = parse_new(json.dumps(reference), {}).name
        except InvalidSchemaError:
            continue
        if name is None:
            continue
        space = random.choice(("", "shop", "x"))
        used = random.choice((name, ["null", name], {"type": "map", "values": name}))
        main = {"type": "record", "name": "Uses", "namespace": space, "fields": [{"name": "f", "type": used}]}
        theirs = java.text(json.dumps(main), [json.dumps(reference)])
        ours = parse_new(json.dumps(main), {"a reference": json.dumps(reference)})
        assert theirs.text == ours.canonical_text or accepted_only_here(theirs)


NAMED_DIFFERENCES: Final = {
    # Java checks a default before the type that contains it is complete. By the specification it is valid.
    "a default of a recursive type": (
        '{"type":"record","name":"R","fields":[{"name":"f","type":["R","null"],"default":{"f":null}}]}',
        "Schema fields not set yet",
    ),
    # A number beyond 64 bits in a property of a record is lost when Java copies the record, and the copy fails.
    "a property beyond 64 bits": (
        '{"type":"record","name":"R","p":18446744073709551616,"fields":[]}',
        "Can't set a property to null: p",
    ),
}


@pytest.mark.parametrize(("text", "reason"), NAMED_DIFFERENCES.values(), ids=NAMED_DIFFERENCES)
def test_what_only_we_accept(java: AvroJava, text: str, reason: str) -> None:
    assert Answer(None, reason) == java.text(text)
    assert our_text(text, is_new=True).text is not None


def test_what_only_java_accepts(java: AvroJava) -> None:
    """Types nested in each other more than 150 times."""
    text = '{"type":"array","items":' * 200 + '"int"' + "}" * 200
    assert text == java.text(text).text
    assert our_text(text, is_new=True).text is None


def our_text(text: str, *, is_new: bool) -> Answer:
    try:
        return Answer((parse_new if is_new else parse)(text, {}).canonical_text)
    except InvalidSchemaError as error:
        return Answer(None, str(error))


def our_incompatibilities(reader: str, writer: str) -> Answer:
    try:
        found = parse(reader, {}).incompatibilities(parse(writer, {}))
    except InvalidSchemaError as error:
        return Answer(None, str(error))
    return Answer("".join(f"{each.kind} {each.path}\n" for each in found))


def accepted_only_here(theirs: Answer) -> bool:
    return theirs.error is not None and any(theirs.error in reason for _, reason in NAMED_DIFFERENCES.values())


def is_ambiguous(theirs: Answer, ours: Answer) -> bool:
    """Java raises an error about such a field, which the registry reports as an incompatibility."""
    return "matches multiple fields" in (theirs.error or "") and (ours.text or "").startswith("READER_FIELD_AMBIGUOUS")
