"""The command that runs Spark's declarative pipelines."""

from pathlib import Path

import pytest

from ottla.spark.pipelines.running.spark_declarative import declarative_command


@pytest.mark.parametrize(
    ("master", "dry", "expected"),
    [
        ("local[2]", False, ["--remote", "local[2]", "run", "--spec", "/shop/x.yml"]),
        ("sc://host", True, ["--remote", "sc://host", "dry-run", "--spec", "/shop/x.yml"]),
        ("spark://host:7077", False, ["--master", "spark://host:7077", "run", "--spec", "/shop/x.yml"]),
    ],
)
def test_command(master: str, dry: bool, expected: list[str]) -> None:
    command = list(declarative_command(Path("/shop/x.yml"), master=master, settings={"spark.a": "b"}, dry=dry))
    assert command[0].endswith("spark-pipelines")
    assert expected == command[-5:]
    assert ["--conf", "spark.a=b"] == command[command.index("spark.a=b") - 1 : command.index("spark.a=b") + 1]


def test_a_relative_folder_is_found_from_the_projects_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)
    command = declarative_command(Path("shop/x.yml"), master="local[2]", settings={}, dry=True)
    # It runs in the folder of the file, where a relative path would begin a second time.
    assert str(tmp_path / "shop" / "x.yml") == command[-1]
