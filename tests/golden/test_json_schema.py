"""JSON Schemas against the verdicts of Confluent's registry: canonical texts, validity, compatibility."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.schemas.json_schema.json_schema import parse, parse_new
from ottla.registry.schemas.parsed_schema import InvalidSchemaError

FOLDER = Path(__file__).parent / "json_schema"


def pairs() -> Iterator[dict[str, Any]]:
    with lzma.open(FOLDER / "pairs.jsonl.xz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def differences(case: dict[str, Any]) -> dict[str, list[str]]:
    """What breaks the reader, by compatibility policy."""
    reader, writer = (parse(json.dumps(case[role]), {}) for role in ("reader", "writer"))
    by_policy = {
        "strict": reader.incompatibilities(writer),
        "lenient": reader.lenient_incompatibilities(writer),
    }
    assert all(difference.path in difference.message for found in by_policy.values() for difference in found)
    return {
        policy: sorted(f"{difference.kind} {difference.path}" for difference in found)
        for policy, found in by_policy.items()
    }


@pytest.mark.slow
def test_generated_pairs_have_the_differences_that_confluents_registry_finds() -> None:
    compared, wrong = 0, []
    for case in pairs():
        found = differences(case)
        compared += 1
        if found != {policy: case[policy] for policy in found}:
            wrong.append({**case, "found": found})
    assert [] == wrong
    assert compared > 3000


DISAGREEMENTS = json.loads((FOLDER / "disagreements.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", DISAGREEMENTS, ids=lambda case: str(case["name"]))
def test_disagreements_are_those_that_are_known(case: dict[str, Any]) -> None:
    assert case["ours"] == differences(case)["strict"]
    assert case["ours"] != case["theirs"]


TEXTS = json.loads((FOLDER / "texts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: str(case["text"]))
def test_texts_are_written_as_confluents_registry_writes_them(case: dict[str, Any]) -> None:
    if not case.get("valid", True):
        with pytest.raises(InvalidSchemaError):
            parse_new(case["text"], {})
        return
    schema = parse_new(case["text"], {})
    assert case["canonical"] == schema.canonical_text == schema.formatted("") == schema.formatted("unknown")
    assert case["normalized"] == schema.normalized_text()
