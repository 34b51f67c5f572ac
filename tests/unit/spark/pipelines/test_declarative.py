"""The command that runs Spark's declarative pipelines."""

from pathlib import Path

import pytest

from ottla.spark.pipelines.declarative import declarative_command


@pytest.mark.parametrize(
    ("master", "dry", "expected"),
    [
        ("local[2]", False, ["--remote", "local[2]", "run", "--spec", "x.yml"]),
        ("sc://host", True, ["--remote", "sc://host", "dry-run", "--spec", "x.yml"]),
        ("spark://host:7077", False, ["--master", "spark://host:7077", "run", "--spec", "x.yml"]),
    ],
)
def test_command(master: str, dry: bool, expected: list[str]) -> None:
    command = list(declarative_command(Path("x.yml"), master=master, settings={"spark.a": "b"}, dry=dry))
    assert command[0].endswith("spark-pipelines")
    assert expected == command[-5:]
    assert ["--conf", "spark.a=b"] == command[command.index("spark.a=b") - 1 : command.index("spark.a=b") + 1]
