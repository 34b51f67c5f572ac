"""Whole projects from folders: the starter is right, and what does not fit together is told."""

from pathlib import Path

import pytest

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.declaration.loading import declarative_file, load_project, schema_text, unused_views
from ottla.spark.pipelines.declaration.problems import ProjectError
from ottla.spark.pipelines.declaration.project_template import make_project

ROOT = Path(__file__).parents[5]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_project(tmp_path, "shop")
    return tmp_path


def problems(folder: Path) -> list[str]:
    with pytest.raises(ProjectError) as raised:
        load_project(folder)
    return str(raised.value).splitlines()


def test_the_starter_is_right(folder: Path) -> None:
    project = load_project(folder)
    assert ("orders", "clean", "totals") == project.order
    assert [] == unused_views(project)
    assert ("orders", "clean") == project.needed_for("clean")
    assert {"the amount is positive": "amount > 0"} == project.expectations("clean")
    assert ("at 1 minute", None) == (project.watermark("orders"), project.watermark("totals"))
    assert "shop.totals" == project.group_id("totals")


def test_the_starter_changes_no_file(folder: Path) -> None:
    before = (folder / "pipeline.toml").read_text()
    (folder / "steps" / "clean.sql").unlink()
    with pytest.raises(MisuseError, match="exists already"):
        make_project(folder, "other")
    assert (before, False) == ((folder / "pipeline.toml").read_text(), (folder / "steps" / "clean.sql").exists())


def test_the_example_is_right() -> None:
    project = load_project(ROOT / "examples" / "orders")
    assert ("raw_orders", "customers", "clean", "enriched", "per_minute") == project.order


def test_no_project(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"no pipeline.toml in .*; create a project with `ottla pipeline init "):
        load_project(tmp_path)


def test_unknown_views(folder: Path) -> None:
    (folder / "steps" / "totals.sql").write_text("SELECT 1\nFROM claen\nJOIN nothing_like_it")
    text = (folder / "pipeline.toml").read_text().replace('from = "clean"', 'from = "cleen"')
    (folder / "pipeline.toml").write_text(text.replace("[steps.clean]", "[steps.clear]"))
    assert [
        "pipeline.toml:15: no step clear in steps/; did you mean clean?",
        "pipeline.toml:24: unknown view cleen in [sinks.archive]; did you mean clean?",
        "steps/totals.sql:2: unknown view claen; did you mean clean?",
        "steps/totals.sql:3: unknown view nothing_like_it; existing: clean, orders, totals",
    ] == problems(folder)


def test_rings(folder: Path) -> None:
    (folder / "steps" / "clean.sql").write_text("SELECT * FROM orders JOIN totals")
    assert ["steps/clean.sql: steps form a cycle: clean reads totals reads clean"] == problems(folder)
    (folder / "steps" / "clean.sql").write_text("SELECT * FROM clean")
    assert ["steps/clean.sql: steps form a cycle: clean reads clean"] == problems(folder)


def test_a_step_called_like_a_source(folder: Path) -> None:
    (folder / "steps" / "orders.sql").write_text("SELECT 1")
    assert ["steps/orders.sql: orders is also a source (pipeline.toml:8); rename one of them"] == problems(folder)


def test_python_steps_name_views(folder: Path) -> None:
    (folder / "steps" / "totals.sql").unlink()
    (folder / "steps" / "totals.py").write_text("import re\n\n\ndef step(spark, cleen):\n    return cleen\n")
    assert ["steps/totals.py:4: unknown view cleen; did you mean clean?"] == problems(folder)


def test_unused_views_are_found(folder: Path) -> None:
    (folder / "steps" / "spare.sql").write_text("SELECT * FROM totals")
    assert ["spare"] == unused_views(load_project(folder))


def test_schemas_in_files(folder: Path) -> None:
    text = (folder / "pipeline.toml").read_text()
    (folder / "pipeline.toml").write_text(
        text.replace('schema = "id STRING, customer STRING, amount DOUBLE, at TIMESTAMP"', 'schema = "orders.ddl"')
    )
    assert ["pipeline.toml: schema file orders.ddl of [sources.orders] does not exist"] == problems(folder)
    (folder / "orders.ddl").write_text("id STRING")
    assert "id STRING" == schema_text(load_project(folder), "orders.ddl")
    assert "id INT" == schema_text(load_project(folder), "id INT")


def test_files_that_are_no_text(folder: Path) -> None:
    (folder / "pipeline.toml").write_bytes(b'name = "\xff"')
    (problem,) = problems(folder)
    assert problem.startswith("pipeline.toml: not valid UTF-8")


def test_declarative_projects(tmp_path: Path) -> None:
    assert declarative_file(tmp_path) is None
    (tmp_path / "spark-pipeline.yml").write_text("name: x\n")
    assert tmp_path / "spark-pipeline.yml" == declarative_file(tmp_path)
