"""One run at a time, and what it keeps."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.model.errors import MisuseError
from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.declaration.project import Project
from ottla.spark.pipelines.declaration.project_template import make_project
from ottla.spark.pipelines.running.run_files import (
    AlreadyRunningError,
    checkpoint_folder,
    checkpoint_place,
    read_progress,
    remove_checkpoint,
    run_lock,
    running_process,
    state_folder,
    write_progress,
)

RUN = """
import sys
from pathlib import Path
from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.running.run_files import run_lock
with run_lock(load_project(Path(sys.argv[1]))):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    make_project(tmp_path, "shop")
    return load_project(tmp_path)


def test_one_run_at_a_time(project: Project) -> None:
    assert running_process(project) is None
    command = [sys.executable, "-c", RUN, str(project.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert "locked\n" == other.stdout.readline()
        assert other.pid == running_process(project)
        with (
            pytest.raises(AlreadyRunningError, match=rf"already running \(process {other.pid}\); stop it first"),
            run_lock(project),
        ):
            pytest.fail("two runs at once")
        other.stdin.close()
    assert running_process(project) is None
    with run_lock(project):
        pass


def test_a_run_that_was_killed_is_no_run(project: Project) -> None:
    command = [sys.executable, "-c", RUN, str(project.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.kill()
    assert running_process(project) is None


def test_progress(project: Project) -> None:
    assert {} == read_progress(project)
    with run_lock(project):
        write_progress(project, {"queries": [{"name": "a"}]})
    assert {"queries": [{"name": "a"}]} == read_progress(project)
    (state_folder(project) / "progress.json").write_text("{")
    assert {} == read_progress(project)


def test_what_is_kept_is_not_for_git(project: Project) -> None:
    with run_lock(project):
        assert "*\n" == (project.folder / ".ottla" / ".gitignore").read_text()


def test_places_of_checkpoints(project: Project) -> None:
    folder = project.folder.resolve()
    assert str(folder / ".ottla" / "shop" / "totals") == checkpoint_place(project, "totals")
    inside = project.with_changes(checkpoints="state")
    assert folder / "state" / "totals" == checkpoint_folder(inside, "totals")
    elsewhere = project.with_changes(checkpoints="hdfs://host/state/")
    assert "hdfs://host/state/totals" == checkpoint_place(elsewhere, "totals")
    assert checkpoint_folder(elsewhere, "totals") is None


def test_removing_checkpoints(project: Project) -> None:
    assert not remove_checkpoint(project, "totals")
    folder = checkpoint_folder(project, "totals")
    assert folder is not None
    (folder / "offsets").mkdir(parents=True)
    assert (True, False) == (remove_checkpoint(project, "totals"), folder.exists())
    with pytest.raises(MisuseError, match="not on this machine; remove it there"):
        remove_checkpoint(project.with_changes(checkpoints="s3://bucket"), "totals")
