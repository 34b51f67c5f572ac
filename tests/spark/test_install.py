"""`pip install 'ottla[spark]'` into a new environment, on a machine without Java: the wheel has all that is needed.

The wheel is built from a copy of the sources; what it depends on comes from where pip gets it here. The program that is
then run is `fresh_install.py`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.spark import fresh_install

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "pyproject.toml", "setup.py", "README.md", "LICENSE")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

pytestmark = pytest.mark.install


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a wheel is built from, with nothing that was built before."""
    copy = tmp_path_factory.mktemp("sources")
    built = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=built)
        else:
            shutil.copy2(source, copy / name)
    # The kernels are compiled side by side, which halves the time.
    (copy / "setup.cfg").write_text(f"[build_ext]\nparallel = {os.cpu_count() or 1}\n")
    return copy


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the tools that are installed here."""
    target = tmp_path_factory.mktemp("wheel")
    run(*PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(target), str(sources))
    [found] = target.glob("ottla-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel and its extra `spark`."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    run(*PIP, "--python", str(python), "install", "--quiet", f"{wheel}[spark]")
    return python


@pytest.fixture
def path_without_java(tmp_path: Path) -> str:
    """Every program of this machine but Java, for a PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for entry in os.environ["PATH"].split(os.pathsep):
        for program in Path(entry).glob("*"):
            link = folder / program.name
            if program.name not in ("java", "javac") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def test_the_wheel_has_both_packages(sources: Path, wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    modules = {path.relative_to(sources / "src").as_posix() for path in (sources / "src").rglob("*.py")}
    assert set() == modules - set(names)
    assert "pyspark_ottla/__init__.py" in names


def test_a_stream_runs_where_there_is_no_java(environment: Path, path_without_java: str, tmp_path: Path) -> None:
    for name in ("home", "run"):
        (tmp_path / name).mkdir()
    assert None is shutil.which("java", path=path_without_java)
    # Nothing of this process's Python or Java may help.
    done = run(
        str(environment),
        str(fresh_install.__file__),
        str(tmp_path / "run"),
        env={"PATH": path_without_java, "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"},
        cwd=tmp_path / "run",
    )
    answer = json.loads(done.splitlines()[-1])
    rows = fresh_install.ROWS
    assert (rows, rows * (rows - 1)) == (answer["count"], answer["total"])
    assert answer["java"].startswith(str(environment.parents[1]))
    assert answer["java_home"].startswith(str(tmp_path / "home"))


def run(*command: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """What it printed; a failure shows what it said."""
    done = subprocess.run(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-6000:]}")
    return done.stdout
