"""Ottla on 64-bit ARM, emulated: `python -m tests.arm64.run_tests`, after `tests/arm64/prepare`.

A wheel is built by the cross compiler and installed beside PyPI's own wheels for that processor. Then every kernel is
imported, the kernels' unit tests and the bytes of real Kafka clients (`tests/golden`) pass, and a record goes through a
broker.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.arm64.emulation import PYTHON, ROOT, SITE, check_prepared, cross_compile, environment, install

TIMEOUT_S = 600
TESTS = (
    "tests/unit/records",
    "tests/unit/protocol",
    "tests/unit/env/test_mapped_file.py",
    "tests/golden/test_batches.py",
)
IMPORT_ALL = "import importlib, sys; [importlib.import_module(each) for each in sys.argv[1:]]"


def check_imports() -> None:
    """Each compiled module is for this processor, and imports."""
    kernels = sorted(SITE.glob("ottla/**/*.cpython-*-aarch64-linux-gnu.so"))
    assert len(kernels) == len(list((ROOT / "src").rglob("*.pyx")))
    names = [".".join(each.relative_to(SITE).with_name(each.name.partition(".")[0]).parts) for each in kernels]
    subprocess.run([PYTHON, "-c", IMPORT_ALL, *names], env=environment(), check=True)
    print(f"{len(names)} kernels import on 64-bit ARM", flush=True)


def check_broker() -> None:
    """A broker starts, and a record goes through it."""
    with tempfile.TemporaryDirectory(prefix="ottla-arm64-") as folder:
        command = [str(PYTHON), "-m", "ottla"]
        options = ["--data", str(Path(folder) / "data"), "--listen", "127.0.0.1:0"]
        broker = subprocess.Popen([*command, "serve", *options], env=environment(), stdout=subprocess.PIPE, text=True)
        try:
            assert broker.stdout is not None
            word, address = broker.stdout.readline().split()
            assert "ready" == word
            asked = environment() | {"OTTLA_BOOTSTRAP": address}
            for words, stdin in (["topics", "create", "events"], ""), (["produce", "events"], "hello\n"):
                subprocess.run([*command, *words], env=asked, input=stdin, text=True, check=True, timeout=TIMEOUT_S)
            consumed = subprocess.run(
                [*command, "consume", "events"], env=asked, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
            )
            assert "hello\n" == consumed.stdout
            broker.terminate()
            assert 0 == broker.wait(TIMEOUT_S)
        finally:
            broker.kill()
            broker.wait()
    print("a record went through a broker on 64-bit ARM", flush=True)


def main() -> int:
    """Returns the exit status of the tests."""
    check_prepared()
    install(cross_compile())
    check_imports()
    check_broker()
    # Ottla is the installed one: `src` is not on the path.
    options = ["-p", "no:cacheprovider", "-m", "not broker and not slow"]
    return subprocess.run([PYTHON, "-m", "pytest", *options, *TESTS], cwd=ROOT, env=environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
