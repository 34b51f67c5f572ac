"""Compiles every kernel for 64-bit ARM and runs the checksums there: `python -m tests.arm64.check_kernels`.

Needs `aarch64-linux-gnu-gcc` and `qemu-aarch64` (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user). The
headers of this machine's Python are used: types have the same sizes on all 64-bit processors.
"""

import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPILER = "aarch64-linux-gnu-gcc"
FLAGS = ("-O1", "-fPIC", "-Wall", "-Wno-unused-function", "-Wno-cpp", f"-I{ROOT / 'src'}")
PROCESSORS = ("max", "cortex-a53")


def compile_kernel(source: Path, folder: Path) -> tuple[Path, str]:
    """Translates and compiles a kernel; the compiler's complaints, empty if there are none."""
    name = ".".join(source.relative_to(ROOT / "src").with_suffix("").parts)
    translated = folder / f"{name}.c"
    cython = [sys.executable, "-m", "cython", "-3", "--module-name", name, "-I", "src", "-o", translated, source]
    done = subprocess.run(list(map(str, cython)), cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return source, done.stderr
    include = sysconfig.get_path("include")
    command = [COMPILER, *FLAGS, f"-I{include}", "-c", str(translated), "-o", str(translated.with_suffix(".o"))]
    done = subprocess.run(command, capture_output=True, text=True)
    return source, done.stderr if done.returncode else ""


def check_checksums(folder: Path) -> None:
    """Compiles the comparison of all ways to compute CRC-32C, and runs it on each processor."""
    program = folder / "crc32c_check"
    source = ROOT / "tests" / "arm64" / "crc32c_check.c"
    subprocess.run([COMPILER, "-O3", "-Wall", "-Werror", "-static", FLAGS[-1], source, "-o", program], check=True)
    for processor in PROCESSORS:
        done = subprocess.run(["qemu-aarch64", "-cpu", processor, program], capture_output=True, text=True, check=True)
        assert "instruction 1\n" == done.stdout, f"{processor}: {done.stdout}"
        print(f"checksums are right on {processor}")


def main() -> int:
    """Returns 1 if a kernel cannot be compiled."""
    with tempfile.TemporaryDirectory(prefix="ottla-arm64-") as name:
        folder = Path(name)
        check_checksums(folder)
        kernels = sorted((ROOT / "src").rglob("*.pyx"))
        with ThreadPoolExecutor(2) as workers:
            found = list(workers.map(lambda each: compile_kernel(each, folder), kernels))
    failed = [(source, words) for source, words in found if words]
    for source, words in failed:
        print(f"{source.relative_to(ROOT)}:\n{words}", file=sys.stderr)
    print(f"{len(found) - len(failed)} of {len(found)} kernels compile for 64-bit ARM")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
