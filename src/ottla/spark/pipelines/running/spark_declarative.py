"""Runs a project of Spark's own declarative pipelines (`spark-pipeline.yml`) in a prepared environment.

Each run processes all present records and ends. There is no continuous mode, no rate limit and no dead letters; the
projects of this package have them.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.spark.launch.session import default_settings, is_local, spark_environment

_PROGRAM: Final = "spark-pipelines"


def declarative_command(file: Path, *, master: str, settings: Mapping[str, str], dry: bool) -> Sequence[str]:
    """The command that runs a project, or only checks it."""
    program = Path(sys.executable).parent / _PROGRAM
    command = [str(program) if program.exists() else _PROGRAM]
    for key, value in (default_settings(master) | dict(settings)).items():
        command += ["--conf", f"{key}={value}"]
    # --master refuses a local master; --remote starts a Spark Connect session for it.
    command += ["--remote" if is_local(master) or master.startswith("sc://") else "--master", master]
    return [*command, "dry-run" if dry else "run", "--spec", str(file.absolute())]


def run_declarative(file: Path, *, master: str, settings: Mapping[str, str], dry: bool = False) -> int:
    """Runs the project with the output of this process; returns the exit status."""
    environment = os.environ | spark_environment(master)
    command = declarative_command(file, master=master, settings=settings, dry=dry)
    return subprocess.run(command, env=environment, cwd=file.parent, check=False).returncode
