"""Spark's checkpoints, read without Spark."""

import json
from pathlib import Path

from ottla.spark.pipelines.running.checkpoints import read_batches, read_checkpoint


def write(folder: Path, batch: int, *sources: object, done: bool, watermark: int = 0) -> None:
    for name in ("offsets", "commits", "sources", "state"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id":"abc"}')
    settings = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 5, "conf": {}})
    lines = ["v1", settings, *(json.dumps(each) for each in sources)]
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))
    (folder / "offsets" / f".{batch}.crc").write_text("")
    if done:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_nothing_there(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "missing") is None
    (tmp_path / "metadata").write_text("{")
    assert read_checkpoint(tmp_path) is None


def test_done_and_begun(tmp_path: Path) -> None:
    write(tmp_path, 9, {"orders": {"0": 1}}, done=True)
    write(tmp_path, 10, {"orders": {"0": 7, "1": 9}, "@ottla": {"group": "g"}}, done=True, watermark=12)
    write(tmp_path, 11, {"orders": {"0": 8, "1": 9}}, done=False)
    state = read_checkpoint(tmp_path)
    assert state is not None
    assert ("abc", 10, True, 12) == (state.query_id, state.batch, state.is_batch_open, state.watermark_ms)
    assert {"orders": {0: 7, 1: 9}} == state.offsets


def test_a_topic_that_is_read_twice_is_as_far_as_the_slower(tmp_path: Path) -> None:
    write(tmp_path, 0, {"a": {"0": 7}, "b": {"0": 1}}, {"a": {"0": 5}}, {"logOffset": 3}, done=True)
    state = read_checkpoint(tmp_path)
    assert state is not None
    assert ({"a": {0: 5}, "b": {0: 1}}, False) == (state.offsets, state.is_batch_open)


def test_nothing_done_yet(tmp_path: Path) -> None:
    write(tmp_path, 0, {"a": {"0": 7}}, done=False)
    state = read_checkpoint(tmp_path)
    assert state is not None
    assert (None, True, {}) == (state.batch, state.is_batch_open, state.offsets)


def test_batches_newest_first_with_what_each_read(tmp_path: Path) -> None:
    assert [] == read_batches(tmp_path, 5)
    write(tmp_path, 9, {"orders": {"0": 1, "1": 2}}, done=True)
    write(tmp_path, 10, {"orders": {"0": 7, "1": 9}, "@ottla": {"group": "g"}}, done=True)
    write(tmp_path, 11, {"orders": {"0": 8, "1": 9}}, done=False)
    found = read_batches(tmp_path, 5)
    assert [(11, 1), (10, 13), (9, None)] == [(each.number, each.offsets_read) for each in found]
    assert [True, False, False] == [each.finished_ms is None for each in found]
    assert [(11, 1), (10, 13)] == [(each.number, each.offsets_read) for each in read_batches(tmp_path, 2)]
