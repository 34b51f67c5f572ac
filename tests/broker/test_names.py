"""What a person finds in the package by looking: its public names, without loading what is behind them."""

import subprocess
import sys

import pytest

LOOK = """
import sys
import {package}
names = [name for name in dir({package}) if not name.startswith("__")]
heavy = [name for name in sys.modules if name.startswith(({heavy}))]
print(sorted(names) == sorted(name for name in {package}.__all__ if not name.startswith("__")), heavy)
"""


@pytest.mark.parametrize(
    ("package", "heavy"),
    [("ottla", "'ottla.broker', 'ottla.client', 'ottla.spark'"), ("ottla.spark", "'pyspark', 'ottla.spark.'")],
)
def test_dir_has_the_public_names_and_loads_nothing(package: str, heavy: str) -> None:
    program = LOOK.format(package=package, heavy=heavy)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "True []\n" == done.stdout
