"""The home with links in which Spark's Python processes find PySpark as a folder, and where there is none."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.spark.launch.spark_home import fast_home, installed_home, is_fast_home


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PySpark and py4j as pip installs them, as far as a home goes, before all others on the path."""
    folder = tmp_path / "packages"
    for name in ("pyspark/jars", "pyspark/bin", "pyspark/python/lib", "pyspark/python/pyspark", "py4j"):
        (folder / name).mkdir(parents=True)
    (folder / "pyspark" / "__init__.py").write_text("version = '1.2'\n")
    (folder / "py4j" / "__init__.py").write_text("")
    for name in ("pyspark.zip", "py4j-0.1-src.zip"):
        (folder / "pyspark" / "python" / "lib" / name).write_bytes(b"")
    for name in [each for each in sys.modules if each.partition(".")[0] in ("pyspark", "py4j")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_python_finds_pyspark_where_the_zip_was(packages: Path, tmp_path: Path) -> None:
    home = fast_home(tmp_path / "cache")
    assert home is not None
    assert packages / "pyspark" / "jars" == (home / "jars").resolve()
    path = f"{home}/python/lib/pyspark.zip:{home}/python/lib/py4j-0.1-src.zip"
    told = subprocess.run(
        [sys.executable, "-S", "-c", "import py4j, pyspark; print(pyspark.version, pyspark.__cached__)"],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert "1.2" == told[0]
    assert packages / "pyspark" / "__pycache__" == Path(told[1]).resolve().parent
    assert Path(told[1]).exists()


def test_it_is_made_once(packages: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: fast_home(tmp_path / "cache"), range(32)))
    assert list((tmp_path / "cache").iterdir()) == list(made)
    (home,) = made
    assert home is not None
    assert is_fast_home({"SPARK_HOME": str(home)})


def test_another_spark_has_another_home(packages: Path, tmp_path: Path) -> None:
    first = fast_home(tmp_path / "cache")
    archives = packages / "pyspark" / "python" / "lib"
    (archives / "py4j-0.1-src.zip").rename(archives / "py4j-0.2-src.zip")
    second = fast_home(tmp_path / "cache")
    assert None not in (first, second)
    assert first != second


def test_a_home_whose_links_lead_nowhere_is_not_used(packages: Path, tmp_path: Path) -> None:
    home = fast_home(tmp_path / "cache")
    assert home is not None
    (home / "jars").unlink()
    assert fast_home(tmp_path / "cache") is None


def test_an_archive_that_is_not_known_stays_with_the_installed_home(packages: Path, tmp_path: Path) -> None:
    (packages / "pyspark" / "python" / "lib" / "other.zip").write_bytes(b"")
    assert fast_home(tmp_path / "cache") is None
    assert packages / "pyspark" == installed_home()


def test_a_cache_that_cannot_be_written_is_no_failure(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    assert fast_home(tmp_path / "cache") is None


@pytest.mark.parametrize(("home", "expected"), [("/opt/spark", False), ("", False), ("/x/spark-home-12", True)])
def test_homes_of_ours_are_known_by_their_name(home: str, expected: bool) -> None:
    assert expected == is_fast_home({"SPARK_HOME": home})
