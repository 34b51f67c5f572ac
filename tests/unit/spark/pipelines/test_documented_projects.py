"""The projects and steps in the documentation are right."""

import re
from pathlib import Path, PurePosixPath

from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.declaration.project_template import make_project
from ottla.spark.pipelines.declaration.step_files import read_steps

DOCUMENT = Path(__file__).parents[4] / "docs" / "pipelines.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


def test_the_tutorials_project(tmp_path: Path) -> None:
    make_project(tmp_path, "shop")
    (tmp_path / "pipeline.toml").write_text(blocks("toml")[0])
    (tmp_path / "steps" / "totals.sql").write_text(blocks("sql")[0])
    assert ("orders", "clean", "totals") == load_project(tmp_path).order


def test_python_steps() -> None:
    steps = [block for block in blocks("python") if block.startswith("# steps/")]
    files = [(PurePosixPath(block.split()[1]), block) for block in steps]
    found, problems = read_steps(files)
    assert ([], {"visits": ("clean",), "priced": ("orders",)}) == (problems, {v: s.reads for v, s in found.items()})
