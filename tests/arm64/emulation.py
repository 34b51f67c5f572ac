"""Python for 64-bit ARM from Debian, run by qemu-user, with the packages that Ottla needs there.

`tests/arm64/prepare` unpacks Debian into `build/arm64/root`. The kernel need not know the emulator: `python` is a
script that starts it, and `sys.executable` names that script, so that processes of the broker are emulated, too.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "arm64"
DEBIAN = HOME / "root"
SITE = HOME / "site"
PYTHON = HOME / "python"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux2014_aarch64", "linux_aarch64")
TEST_NEEDS = ("crc32c", "hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")


def check_prepared() -> None:
    """Ends the program if there is no Debian with a Python of the version that runs this."""
    if not (DEBIAN / "usr" / "bin" / f"python{VERSION}").exists():
        sys.exit(
            f"{DEBIAN} has no Python {VERSION}; run tests/arm64/prepare (OTTLA_ARM_RELEASE names Debian's release)"
        )


def cross_compile() -> Path:
    """Builds a wheel for 64-bit ARM; kernels that setup.py has kept are not compiled again."""
    wheels, settings = HOME / "wheels", HOME / "settings"
    for folder in (wheels, settings):
        folder.mkdir(parents=True, exist_ok=True)
    for old in wheels.glob("*.whl"):
        old.unlink()
    # The settings of the other Python alone: its modules are not for this machine.
    name = "_sysconfigdata__aarch64-linux-gnu"
    (settings / f"{name}.py").write_bytes((DEBIAN / "usr" / "lib" / f"python{VERSION}" / f"{name}.py").read_bytes())
    include = DEBIAN / "usr" / "include"
    environment = os.environ | {
        "PYTHONPATH": str(settings),
        "_PYTHON_SYSCONFIGDATA_NAME": name,
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "CC": "aarch64-linux-gnu-gcc",
        "CFLAGS": f"-I{include / f'python{VERSION}'} -idirafter {include}",
    }
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(wheels)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    (wheel,) = wheels.glob("*.whl")
    return wheel


def install(wheel: Path) -> None:
    """The wheel, and what it and the tests need, from PyPI's wheels for 64-bit ARM."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--upgrade",
        "--target",
        SITE,
    ]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", VERSION]
    command += [part for each in PLATFORMS for part in ("--platform", each)]
    subprocess.run([*map(str, command), f"{wheel}[arrow]", *TEST_NEEDS], check=True)
    (SITE / "sitecustomize.py").write_text(f"import sys\n\nsys.executable = {str(PYTHON)!r}\n")
    PYTHON.write_text(f'#!/bin/sh\nexec qemu-aarch64 -L {DEBIAN} {DEBIAN}/usr/bin/python{VERSION} "$@"\n')
    PYTHON.chmod(0o755)


def environment() -> dict[str, str]:
    """For processes of the emulated Python."""
    return os.environ | {"PYTHONPATH": str(SITE)}
