"""Checks the wheels and the sdist that `make wheels` made: `python -m tests.wheels.check_wheel dist python3.11 …`.

The wheel for each of the interpreters is installed into a new environment in which no compiler is found; there a broker
starts, and a record goes through it. The sdist must have every source that the kernels are compiled from.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
COMPILERS = ("cc", "gcc", "c++", "g++", "clang")


def kernels() -> list[str]:
    """The compiled modules, as paths without suffix."""
    source = ROOT / "src"
    return sorted(str(each.relative_to(source).with_suffix("")) for each in source.rglob("*.pyx"))


def check_content(wheel: Path) -> None:
    """Every kernel is compiled; nothing that was generated on the way is packed."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    missing = [each for each in kernels() if not any(name.startswith(f"{each}.cpython-") for name in names)]
    assert not missing, f"{wheel.name} lacks {missing}"
    unwanted = [name for name in names if name.endswith(".c") or name.startswith(("tests/", "benchmarks/"))]
    assert not unwanted, f"{wheel.name} has {unwanted}"


def check_sdist(archive: Path) -> None:
    """Sources and headers are there, and no compiled file is."""
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    source = ROOT / "src"
    wanted = [each for suffix in ("*.py", "*.pyx", "*.pxd", "*.pyi", "*.h") for each in source.rglob(suffix)]
    missing = [str(each.relative_to(ROOT)) for each in wanted if str(each.relative_to(ROOT)) not in names]
    assert not missing, f"{archive.name} lacks {missing[:5]}"
    assert {"setup.py", "pyproject.toml", "LICENSE", "README.md"} <= names
    compiled = [name for name in names if name.endswith((".so", ".c"))]
    assert not compiled, f"{archive.name} has {compiled[:5]}"


def check_installed(wheel: Path, interpreter: str) -> None:
    """A new environment without a compiler: broker, producer, consumer."""
    with tempfile.TemporaryDirectory(prefix="ottla-wheel-") as name:
        folder = Path(name)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        run([interpreter, "-m", "venv", folder / "env"], environment, folder)
        # Programs are looked for in the new environment alone.
        environment["PATH"] = str(folder / "env" / "bin")
        assert not [each for each in COMPILERS if shutil.which(each, path=environment["PATH"])]
        python = folder / "env" / "bin" / "python"
        run([python, "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel.absolute()], environment, folder)
        ottla = folder / "env" / "bin" / "ottla"
        broker = subprocess.Popen(
            [ottla, "serve", "--data", folder / "data", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            env=environment,
            cwd=folder,
            text=True,
        )
        try:
            assert broker.stdout is not None
            word, address = broker.stdout.readline().split()
            assert "ready" == word
            environment["OTTLA_BOOTSTRAP"] = address
            run([ottla, "topics", "create", "events"], environment, folder)
            run([ottla, "produce", "events"], environment, folder, stdin="hello\n")
            assert "hello\n" == run([ottla, "consume", "events"], environment, folder)
            broker.terminate()
            assert 0 == broker.wait(TIMEOUT_S)
        finally:
            broker.kill()
            broker.wait()


def run(command: list[object], environment: dict[str, str], folder: Path, stdin: str = "") -> str:
    """Runs a command that must succeed; returns what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        env=environment,
        cwd=folder,
        input=stdin,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert 0 == done.returncode, f"{command[0]} ended with {done.returncode}"
    return done.stdout


def tag_of(interpreter: str) -> str:
    """As in the name of a wheel: cp311."""
    script = "import sys; print('cp%d%d' % sys.version_info[:2])"
    return subprocess.run([interpreter, "-c", script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(folder: Path, interpreters: list[str]) -> int:
    """Checks everything in the folder; each interpreter must have a wheel."""
    wheels = sorted(folder.glob("*.whl"))
    (archive,) = folder.glob("*.tar.gz")
    check_sdist(archive)
    print(f"{archive.name}: complete")
    for wheel in wheels:
        check_content(wheel)
        assert "manylinux" in wheel.name or "macosx" in wheel.name, f"{wheel.name} runs only where it was compiled"
        print(f"{wheel.name}: complete")
    for interpreter in interpreters:
        tag = tag_of(interpreter)
        (installed,) = [each for each in wheels if f"-{tag}-" in each.name and os.uname().machine in each.name]
        check_installed(installed, interpreter)
        print(f"{installed.name}: installed without a compiler; a record went through a broker")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
