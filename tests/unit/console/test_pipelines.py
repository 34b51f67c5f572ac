"""Pipelines: what their files say, the picture, and the pages on a real broker."""

import os
from pathlib import Path

from ottla.console.services.pipeline_graph import QueryFacts, draw
from ottla.console.services.pipelines import find_projects, read_pipeline
from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.declaration.project_template import make_project
from ottla.spark.pipelines.running.run_files import run_lock
from tests.unit.console.pipeline_runs import progress, run_of


def test_the_state_of_a_pipeline(shop: Path) -> None:
    assert "never run" == read_pipeline("shop", shop).state
    run_of(shop, "totals", 3, 30)
    progress(shop, totals="running", archive="idle")
    ended = read_pipeline("shop", shop, batches=2)
    assert ("interrupted", ["interrupted", "interrupted"]) == (ended.state, [each.state for each in ended.queries])
    assert [None, None] == [each.rows_per_second for each in ended.queries]
    assert [2, 1] == [each.number for each in ended.queries[0].batches]
    with run_lock(load_project(shop)):
        running = read_pipeline("shop", shop)
    assert ("running", os.getpid(), 7.0) == (running.state, running.process, running.rows_per_second)
    assert 1_700_000_000_500 == running.progress_ms
    progress(shop, totals="stopped", archive="failed")
    (shop / ".ottla" / "shop" / "error.txt").write_text("Traceback (most recent call last)\nValueError: bad <b>row</b>")
    failed = read_pipeline("shop", shop)
    assert failed.error is not None
    assert ("failed", "ValueError: bad <b>row</b>", True) == (
        failed.state,
        failed.error.reason,
        failed.error.is_current,
    )
    progress(shop, totals="stopped", archive="done")
    assert "not running" == read_pipeline("shop", shop).state


def test_a_project_that_is_not_valid_says_why(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text("name = 1\n")
    found = read_pipeline("x", tmp_path)
    assert ("invalid", True) == (found.state, bool(found.problems))


def test_projects_are_found_in_folders_and_once(shop: Path, tmp_path: Path) -> None:
    make_project(tmp_path / "more" / "shop", "shop")
    found = find_projects([tmp_path, shop, tmp_path / "more", tmp_path / "missing"])
    assert {"shop": shop.resolve(), "shop~2": (tmp_path / "more" / "shop").resolve()} == found


def test_the_picture_goes_from_left_to_right(shop: Path) -> None:
    facts = [
        QueryFacts(name="totals", rows_per_second=812.5, lag_by_topic={"orders": 12}, state="running"),
        QueryFacts(name="archive", rows_per_second=None, lag_by_topic={"orders": 40}, state="failed"),
        QueryFacts(name="dead_letters-clean", rows_per_second=0.0, lag_by_topic={}, state="idle"),
    ]
    graph = draw(load_project(shop), facts)
    assert {"orders": "source", "clean": "step", "totals": "step", "to totals": "sink"}.items() <= {
        each.id: each.kind for each in graph.boxes
    }.items()
    places = {each.id: each.x for each in graph.boxes}
    for edge in graph.edges:
        assert places[edge.start.id] < places[edge.end.id]
    lags = {(each.start.id, each.end.id): each.lag for each in graph.edges}
    assert 40 == lags["orders", "clean"]
    rates = {each.end.id: each.rows_per_second for each in graph.edges}
    assert 812.5 == rates["to totals"]
    places_taken = [(each.x, each.y) for each in graph.boxes] + [place for edge in graph.edges for place in edge.via]
    assert len(places_taken) == len(set(places_taken)), "a line runs behind a box"
    assert 1 == len(next(each for each in graph.edges if each.end.id == "to archive").via)
    assert max(x for x, _ in places_taken) < graph.width
