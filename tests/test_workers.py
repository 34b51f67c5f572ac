"""How the tests themselves are run: forked workers, tests that are run again, and the steps of `.ci/run`."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.sweeps import sweep
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]

CONFTEST = """
from tests import workers

def pytest_addoption(parser):
    workers.add_options(parser)

def pytest_configure(config):
    config.pluginmanager.register(workers.WorkerPool(config))
"""

TESTS = """
import os
import pathlib
import pytest

def test_good(): pass

def test_by_chance():
    marker = pathlib.Path("ran_before")
    if not marker.exists():
        marker.touch()
        assert False, "the first time"

def test_killed(): os.kill(os.getpid(), 9)

def test_after_the_killed(): pass

def test_bad():
    print("the broker's last words")
    assert 1 == 2

@pytest.fixture
def broken(): raise OSError("no disk")

def test_without_its_fixture(broken): pass

@pytest.mark.skip(reason="of this test")
def test_skipped(): pass
"""


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python in a folder of its own."""
    environment = {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    return processes.run([sys.executable, *command], status=None, environment=environment, folder=folder)


def run_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests above in two workers."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_samples.py").write_text(TESTS)
    return run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--workers", "2", *options)


def verdicts(folder: Path) -> dict[str, str]:
    """The first line of each report that was kept, by its test."""
    return {
        path.parent.name: path.read_text().splitlines()[0] for path in (folder / "build/failures").glob("*/report.txt")
    }


def test_what_passes_the_second_time_is_flaky(tmp_path: Path) -> None:
    completed = run_tests(tmp_path, "--rerun-failed")
    assert completed.returncode == 1
    assert "2 failed, 3 passed, 1 skipped, 1 error in " in completed.stdout
    assert verdicts(tmp_path) == {
        "test_samples.py-test_by_chance": "FLAKY test_samples.py::test_by_chance: AssertionError: the first time",
        "test_samples.py-test_killed": (
            "FAILED test_samples.py::test_killed: the process of this test ended with signal SIGKILL"
        ),
        "test_samples.py-test_bad": "FAILED test_samples.py::test_bad: assert 1 == 2",
        "test_samples.py-test_without_its_fixture": (
            "FAILED test_samples.py::test_without_its_fixture: OSError: no disk"
        ),
    }
    assert "FLAKY test_samples.py::test_by_chance: AssertionError: the first time" in completed.stdout
    report = (tmp_path / "build/failures/test_samples.py-test_bad/report.txt").read_text()
    assert "the broker's last words" in report
    assert 2 == report.count("FAILED test_samples.py::test_bad: assert 1 == 2\n"), "both times"


def test_without_reruns_each_failure_is_final(tmp_path: Path) -> None:
    completed = run_tests(tmp_path, "-k", "by_chance or good")
    assert completed.returncode == 1
    assert "1 failed, 1 passed" in completed.stdout
    assert "FLAKY" not in completed.stdout


def test_flaky_tests_alone_do_not_fail_the_run(tmp_path: Path) -> None:
    completed = run_tests(tmp_path, "--rerun-failed", "-k", "by_chance or good")
    assert completed.returncode == 0, completed.stdout
    assert "FLAKY test_samples.py::test_by_chance: AssertionError: the first time" in completed.stdout


def test_the_files_of_a_failed_test_are_kept(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST + "\nfrom tests.conftest import pytest_runtest_makereport\n")
    (tmp_path / "test_files.py").write_text(
        "def test_bad(tmp_path):\n    (tmp_path / 'broker.log').write_text('WARNING disk full')\n    assert False\n"
    )
    run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--workers", "1")
    kept = tmp_path / "build/failures/test_files.py-test_bad/files/broker.log"
    assert kept.read_text() == "WARNING disk full"


def test_workers_take_single_tests_where_modules_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_meeting.py").write_text(
        "import os, pathlib, time, pytest\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        "def test_two_processes_run_these(number):\n"
        "    pathlib.Path(f'pid-{os.getpid()}').touch()\n"
        "    while len(list(pathlib.Path().glob('pid-*'))) < 2:\n"
        "        time.sleep(0.01)\n"
    )
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--workers", "2", "--take", "test")
    assert 0 == run(tmp_path, *command).returncode


def test_a_sweep_names_the_case_that_failed(tmp_path: Path) -> None:
    @sweep("number", (1, 2, 3))
    @sweep(("name", "size"), [("a", 1), ("b", 2)])
    def test(folder: Path, number: int, name: str, size: int) -> None:
        (folder / f"{number}{name}{size}").touch()
        assert not (number == 2 and name == "b")

    assert ["folder"] == list(inspect.signature(test).parameters)
    with pytest.raises(AssertionError) as caught:
        test(folder=tmp_path)
    assert ["name='b', size=2", "number=2"] == caught.value.__notes__
    assert ["1a1", "1b2", "2a1", "2b2"] == sorted(path.name for path in tmp_path.iterdir())


def run_steps(folder: Path, steps: str, *arguments: str) -> tuple[int, str]:
    """The exit status of steps that are given as source, and what was printed, with times as `N s`."""
    program = (
        "import sys; from tests.ci_steps import Step, main\n"
        "def step(name, command, after=(), **options):\n"
        "    return Step(**{'name': name, 'command': command, 'after': after, 'cores': 1, 'minutes': 1} | options)\n"
        f"sys.exit(main([{steps}]))"
    )
    completed = run(folder, "-c", program, *arguments)
    assert not completed.stderr
    return completed.returncode, re.sub(r" *\d+ s(?= )| *\d+ s$", " N s", completed.stdout, flags=re.MULTILINE)


def test_steps_that_need_a_failed_one_are_left_out_and_all_others_run(tmp_path: Path) -> None:
    status, output = run_steps(
        tmp_path,
        "step('build', 'echo no compiler; false', installs=True), step('tests', 'true', ['build']),"
        " step('style', 'false'), step('docs', 'echo 2 passed in 1.5s', ['style'])",
    )
    assert status == 1
    assert output.split("== durations (wall, CPU)\n")[1].splitlines() == [
        " N s N s  FAILED  build",
        " N s N s  FAILED  style",
        " N s N s  passed  docs",
        "                    left out  tests",
        " N s in all",
        "build: no compiler",
        "2 passed, 0 failed, 0 skipped",
    ]
    assert "== docs: passed in N s\n\n2 passed in 1.5s\n" in output


def test_steps_share_the_cores(tmp_path: Path) -> None:
    meet = "echo {0} begins >> order; until grep -q '{1} begins' order; do sleep 0.01; done; echo {0} ends >> order"
    status, _ = run_steps(
        tmp_path,
        f"""step('a', "{meet.format("a", "b")}"), step('all', "{meet.format("all", "all")}", cores=2),"""
        f"""step('b', "{meet.format("b", "a")}")""",
    )
    order = (tmp_path / "order").read_text().split("\n")
    assert status == 0
    assert sorted(order[:2]) == ["a begins", "b begins"]
    assert order[4:] == ["all begins", "all ends", ""]


def test_a_step_that_hangs_is_ended(tmp_path: Path) -> None:
    status, output = run_steps(tmp_path, "step('hangs', 'echo waiting; sleep 600 & sleep 600', minutes=0.01)")
    assert status == 1
    assert "waiting\n\nended after 0.01 minutes, which is its limit\n" in output


def test_processes_that_a_step_leaves_are_ended(tmp_path: Path) -> None:
    leaves = "setsid sleep 600 & echo $! > left"
    status, _ = run_steps(tmp_path, f"step('leaves', '{leaves}')")
    assert status == 0
    left = Path("/proc", (tmp_path / "left").read_text().strip())
    wait_until(lambda: not left.exists(), "the process that the step left has ended")


def test_a_step_is_run_alone_by_its_name(tmp_path: Path) -> None:
    steps = "step('build', 'false'), step('docs', 'true', ['build'])"
    status, output = run_steps(tmp_path, steps, "docs")
    assert (status, "build" in output) == (0, False)
    program = "from tests.ci_steps import Step, main\nmain([Step(name='docs', minutes=1, cores=1)])"
    unknown = run(tmp_path, "-c", program, "dcos")
    assert unknown.returncode == 2
    assert "no such step: dcos; there are: docs" in unknown.stderr


def test_more_than_three_flaky_tests_fail_the_run(tmp_path: Path) -> None:
    for number in range(4):
        status, output = run_steps(tmp_path, "step('tests', '''" + _writes_flaky(number + 1) + "''')")
        assert status == int(number == 3)
        assert f"FLAKY test_{number}: late" in output
    assert "4 tests are FLAKY: more than 3 fail the run" in output


def _writes_flaky(count: int) -> str:
    commands = (
        f"mkdir -p build/failures/{number}; echo FLAKY test_{number}: late > build/failures/{number}/report.txt"
        for number in range(count)
    )
    return "; ".join(commands)
