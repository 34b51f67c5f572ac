"""Runs a project of Spark's own declarative pipelines (`spark-pipeline.yml`), with its environment prepared.

They serve where tables are brought up to date from time to time: each run takes all there is and ends. They know no
continuous mode, no limits and no dead letters; for these there are the projects of this package.
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
    """The command that runs such a project, or only checks it, from any folder."""
    program = Path(sys.executable).parent / _PROGRAM
    command = [str(program) if program.exists() else _PROGRAM]
    for key, value in (default_settings(master) | dict(settings)).items():
        command += ["--conf", f"{key}={value}"]
    # A local master is refused as such; as a remote it starts a Connect session of its own.
    command += ["--remote" if is_local(master) or master.startswith("sc://") else "--master", master]
    return [*command, "dry-run" if dry else "run", "--spec", str(file.absolute())]


def run_declarative(file: Path, *, master: str, settings: Mapping[str, str], dry: bool = False) -> int:
    """Runs the project to its end, its output being this process's; answers the exit status."""
    environment = os.environ | spark_environment(master)
    command = declarative_command(file, master=master, settings=settings, dry=dry)
    return subprocess.run(command, env=environment, cwd=file.parent, check=False).returncode
