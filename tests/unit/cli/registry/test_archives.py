"""The order of an export, and files that are not one."""

import json
from typing import Any

import pytest

from ottla.cli.registry.archives import ArchiveError, header, in_order, read_lines


def version(subject: str, number: int, *references: tuple[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {"subject": subject, "version": number}
    if references:
        found["references"] = [{"name": "r", "subject": name, "version": at} for name, at in references]
    return found


def keys(schemas: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(each["subject"], each["version"]) for each in schemas]


def test_references_come_first() -> None:
    schemas = [version("a", 1, ("z", 1)), version("a", 2), version("z", 1, ("m", 2)), version("m", 2), version("m", 1)]
    assert [("m", 1), ("m", 2), ("z", 1), ("a", 1), ("a", 2)] == keys(in_order(schemas))


def test_references_out_of_the_export_do_not_matter() -> None:
    assert [("a", 1)] == keys(in_order([version("a", 1, ("b", 7))]))


def test_a_circle_has_no_order_but_loses_nothing() -> None:
    schemas = [version("a", 1, ("b", 1)), version("b", 1, ("a", 1))]
    assert [("a", 1), ("b", 1)] == sorted(keys(in_order(schemas)))


def test_a_long_chain_needs_no_deep_stack() -> None:
    chain = [version(f"s{number:05}", 1, (f"s{number + 1:05}", 1)) for number in range(5_000)]
    ordered = keys(in_order(chain))
    assert ("s04999", 1) == ordered[0]
    assert 5_000 == len(ordered)


def test_an_export_is_read() -> None:
    lines = [json.dumps(header("http://x")), "", json.dumps({"kind": "schema", "subject": "s"})]
    assert [{"kind": "schema", "subject": "s"}] == list(read_lines(lines, "f"))


@pytest.mark.parametrize(
    "lines", [["{"], ["[]"], ["{}"], [json.dumps({"kind": "schema"})], [json.dumps({**header("u"), "version": 2})]]
)
def test_other_files_are_refused(lines: list[str]) -> None:
    with pytest.raises(ArchiveError):
        list(read_lines(lines, "f"))


def test_references_are_in_the_context_of_their_subject() -> None:
    schemas = [version(":.c:a", 1, ("z", 1)), version(":.c:z", 1), version("z", 1)]
    ordered = keys(in_order(schemas))
    assert ordered.index((":.c:z", 1)) < ordered.index((":.c:a", 1))
