"""`ottla log dump` on folders that Kafka wrote, and on damage."""

from pathlib import Path
from typing import Any

import pytest

from ottla.cli.log.files import read_path
from ottla.env.real_disk import RealDisk
from ottla.records.builder import BatchBuilder
from tests.golden.manifest import FOLDERS, unpack
from tests.unit.cli.command_line import CommandLine


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data dir that Kafka wrote and shut down."""
    folder = tmp_path_factory.mktemp("kafka") / "data"
    unpack(FOLDERS / "clean.tar.xz", folder)
    return folder


def batch(values: list[bytes], base_offset: int) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=4)
    for value in values:
        builder.append(1000, b"k", value, [("h", b"1")])
    return builder.build()


def found(path: Path, *, records: bool = False) -> list[dict[str, Any]]:
    return list(read_path(RealDisk(), str(path), records=records))


def kinds(findings: list[dict[str, Any]]) -> set[str]:
    return {finding["kind"] for finding in findings}


def test_a_data_dir_of_kafkas_is_read_whole_and_undamaged(kafkas: Path) -> None:
    findings = found(kafkas, records=True)
    assert {
        "batch",
        "empty",
        "record",
        "offset_entry",
        "time_entry",
        "aborted_transaction",
        "producer",
        "leader_epoch",
        "checkpoint",
        "properties",
    } == kinds(findings)


def test_transactions_show_their_markers(kafkas: Path) -> None:
    findings = found(kafkas / "transactions-0")
    markers = [finding["marker"] for finding in findings if finding["kind"] == "batch" and "marker" in finding]
    assert {"abort", "commit"} == set(markers)
    assert markers.count("abort") == sum(finding["kind"] == "aborted_transaction" for finding in findings)


def test_batches_and_records_are_shown_with_their_place(tmp_path: Path) -> None:
    first, second = batch([b"a", b"b"], 5), batch([b"c"], 7)
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(first + second)
    findings = found(path, records=True)
    assert [(0, 5, 6, 2, 4), (len(first), 7, 7, 1, 4)] == [
        tuple(finding[key] for key in ("position", "base_offset", "last_offset", "count", "leader_epoch"))
        for finding in findings
        if finding["kind"] == "batch"
    ]
    assert [(5, b"k", b"a"), (6, b"k", b"b"), (7, b"k", b"c")] == [
        tuple(finding[key] for key in ("offset", "key", "value")) for finding in findings if finding["kind"] == "record"
    ]


def test_damage_is_shown_where_it_is_and_reading_goes_on_behind_it(tmp_path: Path) -> None:
    batches = [batch([b"%d" % at], at) for at in range(4)]
    data = bytearray(b"".join(batches) + batches[0][:40])
    size = len(batches[0])
    data[size + 65] ^= 1
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    findings = found(path)
    assert ["batch", "damage", "batch", "batch", "damage"] == [finding["kind"] for finding in findings]
    assert (size, 2 * size) == (findings[1]["position"], findings[1]["continues_at"])
    assert "fails its checksum" in findings[1]["problem"]
    assert (4 * size, None) == (findings[4]["position"], findings[4]["continues_at"])
    assert "incomplete" in findings[4]["problem"]


def test_zeros_up_to_the_end_are_unwritten_and_zeros_before_other_bytes_are_damage(tmp_path: Path) -> None:
    path, whole = tmp_path / "00000000000000000000.log", batch([b"a"], 0)
    for content in (whole, b""):
        path.write_bytes(content + bytes(3_000_000))
        *read, last = found(path)
        assert [] == [each for each in read if each["kind"] != "batch"]
        assert ("unwritten", len(content), 3_000_000) == (last["kind"], last["position"], last["size_bytes"])
    path.write_bytes(whole + bytes(3_000_000) + b"x")
    assert ["batch", "damage"] == [each["kind"] for each in found(path)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("00000000000000000000.index", b"\0\0\0\5\0\0\0\1" + b"\0\0\0\4\0\0\0\2"),
        ("00000000000000000000.index", b"123"),
        ("00000000000000000000.timeindex", b"\0" * 7 + b"\5\0\0\0\1" + b"\0" * 7 + b"\4\0\0\0\2"),
        ("00000000000000000000.txnindex", b"123"),
        ("00000000000000000000.snapshot", b"123"),
        ("leader-epoch-checkpoint", b"0\n2\n1 1\n"),
        ("recovery-point-offset-checkpoint", b"0\n1\ntopic x y\n"),
    ],
)
def test_damaged_small_files_are_findings_too(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert "damage" == found(tmp_path / name)[-1]["kind"]


def test_room_that_kafka_keeps_behind_its_entries_is_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.index"
    path.write_bytes(b"\0\0\0\5\0\0\1\0" + bytes(80))
    assert [{"file": str(path), "kind": "offset_entry", "offset": 105, "position": 256}] == found(path)


def test_the_command_prints_lines_or_json_and_its_status_tells(ottla: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    good = batch([b"a", b"\xff"], 0)
    (folder / "00000000000000000000.log").write_bytes(good)
    (folder / "not-ours.log").write_text("another program's")
    shown = ottla.ok("log", "dump", str(folder), "--records").out
    assert f"{folder}/00000000000000000000.log" == shown.splitlines()[0]
    assert "offset=1  timestamp=1000  key='k'  value='\\xff'  headers=[h='1']" in shown
    lines = ottla.ok("log", "dump", f"{folder}/", "--records", "--json").json_lines
    assert ["batch", "record", "record"] == [line["kind"] for line in lines]
    assert {"base64": "/w=="} == lines[2]["value"]

    (folder / "00000000000000000000.log").write_bytes(good[:-1])
    damaged = ottla("log", "dump", str(folder))
    assert (1, "ottla: found 1 damaged place\n") == (damaged.status, damaged.err)


@pytest.mark.parametrize("path", ["nowhere", "empty", "empty/file.txt"])
def test_what_is_no_log_is_refused_in_words(path: str, ottla: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/file.txt").write_text("x")
    refused = ottla("log", "dump", str(tmp_path / path))
    assert (1, "") == (refused.status, refused.out)
    assert refused.err.startswith(f"ottla: {tmp_path / path}: ")
