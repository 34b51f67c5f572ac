"""The build of the kernels: a kernel is compiled once, and again only if something that it is made of has changed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONE = """cdef extern from "one.h":
    int ONE
def one():
    return ONE
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two small kernels, built as Ottla is."""
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['setuptools', 'Cython']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'small'\nversion = '1'\n[tool.setuptools.packages.find]\nwhere = ['src']\n"
    )
    small = tmp_path / "src" / "small"
    small.mkdir(parents=True)
    (small / "__init__.py").touch()
    (small / "one.pyx").write_text(ONE)
    (small / "one.h").write_text("enum { ONE = 1 };\n")
    (small / "two.pyx").write_text("def two():\n    return 2\n")
    return tmp_path


def build(project: Path, *command: str, **environment: str) -> list[str]:
    """Builds; the kernels that were compiled, in alphabetical order."""
    done = subprocess.run(
        [sys.executable, *(command or ("setup.py", "build_ext", "--inplace"))],
        cwd=project,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    said = re.findall(r"^compiling (\S+) \((\d+) of (\d+)\)", done.stdout + done.stderr, re.MULTILINE)
    assert [str(number + 1) for number in range(len(said))] == sorted(number for _, number, _ in said)
    return sorted(name for name, _, _ in said)


def call(project: Path, expression: str) -> str:
    """What an expression of the built package is, in a new process."""
    command = [sys.executable, "-c", f"import small.one, small.two; print({expression})"]
    environment = os.environ | {"PYTHONPATH": str(project / "src")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


def test_only_what_has_changed_is_compiled(project: Path) -> None:
    assert ["small.one", "small.two"] == build(project)
    assert [] == build(project)
    # A new checkout has new times and the same content.
    for path in (project / "src").rglob("*"):
        path.touch()
    assert [] == build(project)
    (project / "src" / "small" / "one.h").write_text("enum { ONE = 11 };\n")
    assert "small.one" in build(project)
    assert "(11, 2)\n" == call(project, "(small.one.one(), small.two.two())")
    (project / "src" / "small" / "two.pyx").write_text("def two():\n    return 22\n")
    assert ["small.two"] == build(project)
    assert "22\n" == call(project, "small.two.two()")


def test_other_settings_are_another_build(project: Path) -> None:
    assert ["small.one", "small.two"] == build(project)
    assert ["small.one", "small.two"] == build(project, CFLAGS="-DOTHER")
    assert [] == build(project)
    assert [] == build(project, CFLAGS="-DOTHER")


def test_an_installation_uses_what_was_compiled(project: Path) -> None:
    wheel = "from setuptools import build_meta; build_meta.{}('dist')"
    assert ["small.one", "small.two"] == build(project)
    (project / "dist").mkdir()
    for kind in ("build_editable", "build_wheel", "build_editable"):
        assert [] == build(project, "-c", wheel.format(kind))
    assert "1\n" == call(project, "small.one.one()")


def test_a_kernel_that_cannot_be_compiled_is_not_kept(project: Path) -> None:
    header = project / "src" / "small" / "one.h"
    header.write_text("this is not C\n")
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    assert 0 != subprocess.run(command, cwd=project, capture_output=True, timeout=300, check=False).returncode
    header.write_text("enum { ONE = 3 };\n")
    assert "small.one" in build(project)
    assert "3\n" == call(project, "small.one.one()")
