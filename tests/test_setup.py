"""The build of the kernels: a kernel is compiled once, and again only if something that it is made of has changed."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[1]
ONE = """cdef extern from "small/one.h":
    int ONE
def one():
    return ONE
"""


@pytest.fixture(scope="module", autouse=True)
def fast_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The machine's C compiler without optimisation, which is most of a small kernel's compilation."""
    compiler = tmp_path_factory.mktemp("compiler") / "cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0 -g0\n')
    compiler.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", str(compiler))
        yield


def lay_out(folder: Path) -> Path:
    """A project of two small kernels, built as Ottla is."""
    shutil.copy(ROOT / "setup.py", folder)
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['setuptools', 'Cython']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'small'\nversion = '1'\n[tool.setuptools.packages.find]\nwhere = ['src']\n"
    )
    small = folder / "src" / "small"
    small.mkdir(parents=True)
    (small / "__init__.py").touch()
    (small / "one.pyx").write_text(ONE)
    (small / "one.h").write_text("enum { ONE = 1 };\n")
    (small / "two.pyx").write_text("def two():\n    return 2\n")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project, not built yet."""
    return lay_out(tmp_path)


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = lay_out(tmp_path_factory.mktemp("project"))
    assert ["small.one", "small.two"] == build(project)
    return project


@pytest.fixture
def built(first_build: Path, tmp_path: Path) -> Path:
    """A copy of the project, built."""
    return shutil.copytree(first_build, tmp_path / "project")


def build(project: Path, *command: str, **environment: str) -> list[str]:
    """Builds; the kernels that were compiled, in alphabetical order."""
    words = command or ("setup.py", "build_ext", "--inplace")
    done = run([sys.executable, *words], folder=project, environment=environment, seconds=300)
    said = re.findall(r"^compiling (\S+) \((\d+) of (\d+)\)", done.stdout + done.stderr, re.MULTILINE)
    assert [str(number + 1) for number in range(len(said))] == sorted(number for _, number, _ in said)
    return sorted(name for name, _, _ in said)


def call(project: Path, module: str, function: str) -> str:
    """What a function of the built package returns, in a new process."""
    command = [sys.executable, "-c", f"from {module} import {function}; print({function}())"]
    return run(command, environment={"PYTHONPATH": str(project / "src")}).stdout


def test_only_what_has_changed_is_compiled(built: Path) -> None:
    assert [] == build(built)
    # A new checkout has new times and the same content.
    for path in (built / "src").rglob("*"):
        path.touch()
    assert [] == build(built)
    (built / "src" / "small" / "one.h").write_text("enum { ONE = 11 };\n")
    assert "small.one" in build(built)
    assert "11\n" == call(built, "small.one", "one")
    assert "2\n" == call(built, "small.two", "two")
    (built / "src" / "small" / "two.pyx").write_text("def two():\n    return 22\n")
    assert ["small.two"] == build(built)
    assert "22\n" == call(built, "small.two", "two")


def test_a_header_of_another_package_is_a_source(project: Path) -> None:
    small = project / "src" / "small"
    (small / "one.pyx").unlink()
    (small / "two.pyx").unlink()
    (small / "far").mkdir()
    (small / "far" / "__init__.py").touch()
    (small / "far" / "one.pxd").write_text('cdef extern from "small/one.h":\n    int ONE\n')
    (small / "far" / "three.pyx").write_text("from small.far.one cimport ONE\ndef three():\n    return ONE + 2\n")
    assert ["small.far.three"] == build(project)
    (small / "one.h").write_text("enum { ONE = 11 };\n")
    assert ["small.far.three"] == build(project)
    assert "13\n" == call(project, "small.far.three", "three")


def test_other_settings_are_another_build(built: Path) -> None:
    assert ["small.one", "small.two"] == build(built, CFLAGS="-DOTHER")
    assert [] == build(built)
    assert [] == build(built, CFLAGS="-DOTHER")


def test_an_installation_uses_what_was_compiled(built: Path) -> None:
    wheel = "from setuptools import build_meta; build_meta.{}('dist')"
    (built / "dist").mkdir()
    for kind in ("build_editable", "build_wheel", "build_editable"):
        assert [] == build(built, "-c", wheel.format(kind))
    assert "1\n" == call(built, "small.one", "one")


def test_a_kernel_that_cannot_be_compiled_is_not_kept(project: Path) -> None:
    (project / "src" / "small" / "two.pyx").unlink()
    header = project / "src" / "small" / "one.h"
    header.write_text("this is not C\n")
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    assert 0 != run(command, status=None, folder=project, seconds=300).returncode
    header.write_text("enum { ONE = 3 };\n")
    assert ["small.one"] == build(project)
    assert "3\n" == call(project, "small.one", "one")
