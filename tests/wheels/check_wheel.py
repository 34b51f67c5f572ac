"""Checks the wheels and the sdist that `make wheels` made: `python -m tests.wheels.check_wheel dist`.

The wheel for this interpreter is installed into a new environment in which no compiler can run; there a broker starts,
and a record goes through it. The sdist must have every source that the kernels are compiled from.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}


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


def check_installed(wheel: Path) -> None:
    """A new environment without a compiler: broker, producer, consumer."""
    with tempfile.TemporaryDirectory(prefix="ottla-wheel-") as name:
        folder = Path(name)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | NO_COMPILER
        run([sys.executable, "-m", "venv", folder / "env"], environment, folder)
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


def main(folder: Path) -> int:
    """Checks everything in the folder."""
    wheels = sorted(folder.glob("*.whl"))
    (archive,) = folder.glob("*.tar.gz")
    check_sdist(archive)
    print(f"{archive.name}: complete")
    mine = [each for each in wheels if f"cp{sys.version_info.major}{sys.version_info.minor}-" in each.name]
    for wheel in wheels:
        check_content(wheel)
        assert "manylinux" in wheel.name or "macosx" in wheel.name, f"{wheel.name} runs only where it was compiled"
        print(f"{wheel.name}: complete")
    (installed,) = [each for each in mine if os.uname().machine in each.name]
    check_installed(installed)
    print(f"{installed.name}: installed without a compiler; a record went through a broker")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
