"""What commands print when nobody's terminal is there, and options that are read everywhere alike."""

import pytest
import typer

from ottla.cli.options import parse_pairs, parse_size
from ottla.cli.output import MISSING, human_bytes, human_count, print_facts, print_table


def test_a_piped_table_is_aligned_with_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [("a", 5), ("longer", 1000), ("none", None)][:2])
    assert "NAME    COUNT\na           5\nlonger   1000\n" == capsys.readouterr().out


def test_numbers_stay_to_the_right_where_some_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("lag", "host"), [(5, MISSING), (MISSING, MISSING), (None, MISSING), (1000, MISSING)])
    assert " LAG  HOST\n   5  -\n   -  -\n      -\n1000  -\n" == capsys.readouterr().out


def test_an_empty_table_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [])
    assert "NAME  COUNT\n" == capsys.readouterr().out


def test_facts_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"id": 3, "cluster": None})
    assert "id       3\ncluster\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "expected"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (-1, "unknown")]
)
def test_sizes_are_said_as_people_say_them(size: int, expected: str) -> None:
    assert expected == human_bytes(size)


def test_counts_agree_with_their_nouns() -> None:
    assert ("1 record", "1,234 records") == (human_count(1, "record"), human_count(1234, "record"))


@pytest.mark.parametrize(("text", "expected"), [("100", 100), ("16k", 16384), ("1 MiB", 1 << 20), ("2G", 2 << 30)])
def test_sizes_are_read(text: str, expected: int) -> None:
    assert expected == parse_size(text, "--size")


@pytest.mark.parametrize("text", ["", "k", "-1", "1x", "0", "1.5k"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a valid size"):
        parse_size(text, "--size")


def test_pairs_are_read_and_a_value_may_hold_an_equals_sign() -> None:
    assert {"a": "1=2", "b": ""} == parse_pairs(["a=1=2", "b="], "--config")
    with pytest.raises(typer.BadParameter, match="'a' is not key=value"):
        parse_pairs(["a"], "--config")
