"""The steps of `.ci/run`, side by side where the cores allow it: `python -m tests.ci_steps [STEP...]`.

Each step is a command, with what it needs: the steps that must have ended before, and how many of the machine's two
cores it keeps busy on average. Steps that wait share the cores; what measures time has both. All steps
run, even if one failed, except those that need what it installs: one run tells everything that is wrong. What a step
prints is shown when it ends, and kept in `build/ci`.

A test that fails is run again, alone (`tests/workers.py`). If it passes then, it is listed as FLAKY and the run does
not fail, unless there are more than three of them. The last lines say what failed, with the first line of each error
and the last lines that brokers logged. Everything else that a failed test left is in `build/failures`.

Runs with the standard library alone: it installs the rest.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LOGS: Final = Path("build/ci")
FAILURES: Final = Path("build/failures")
CORES: Final = 2
STEP_VARIABLE: Final = "OTTLA_CI_STEP"
FLAKY_MAX: Final = 3
LINES_MAX: Final = 40
"""How long the summary may be: some show only the end of a log."""
LOOK_SECONDS: Final = 0.2
TESTS: Final = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
LOG_LINE: Final = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|Traceback|Error: ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command that is cut off after some minutes."""

    name: str
    minutes: float
    cores: float
    """In quarters, which can be added without rounding."""
    after: Sequence[str] = ("everything else installed",)
    command: str = ""
    """The name, if it is not given."""
    installs: bool = False
    """What comes after it needs it. Without a step that only tests, the others still tell what is wrong."""


STEPS: Final = (
    Step(name="installation", minutes=15, cores=2, after=(), command="make .venv/.installed-dev", installs=True),
    # With nothing else installed than what `make test` itself installs.
    Step(name="make test", minutes=15, cores=2, after=("installation",)),
    Step(
        name="preparation",
        minutes=25,
        cores=0,  # waits for the network
        after=("installation",),
        command="tests/compat/prepare && tests/console/prepare",
        installs=True,
    ),
    Step(
        name="everything else installed",
        minutes=15,
        cores=2,
        after=("make test",),
        command="make .venv/.installed-compat .venv/.installed-spark .venv/.installed-cluster"
        " .venv/.installed-browser .venv/.installed-docs",
        installs=True,
    ),
    Step(name="make test-spark", minutes=22, cores=1.25, after=("everything else installed", "preparation")),
    Step(name="make test-compat", minutes=22, cores=0.75, after=("everything else installed", "preparation")),
    Step(name="make test-hostile", minutes=12, cores=0.75),
    Step(name="make test-cluster", minutes=12, cores=0.75, after=("everything else installed", "preparation")),
    Step(name="make check", minutes=8, cores=0.5),
    Step(name="make test-console", minutes=8, cores=0.5, after=("everything else installed", "preparation")),
    Step(name="make test-slow", minutes=6, cores=2),
    Step(name="make test-sim", minutes=14, cores=2),
    Step(name="make docs", minutes=5, cores=0.25),
    Step(name="make fuzz", minutes=9, cores=1, command="make fuzz FUZZ_SECONDS=30"),
    Step(name="make test-newest", minutes=10, cores=2),
    Step(name="make bench-guard", minutes=8, cores=2),
)
"""In the order in which they start, if the cores allow it: the longest first, so that none remains for the end."""


@dataclass(slots=True, kw_only=True)
class Run:
    """A step that was started."""

    step: Step
    process: "subprocess.Popen[bytes]"
    started: float = field(default_factory=time.monotonic)
    status: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def log(self) -> Path:
        """The file with the output of the step."""
        return log_of(self.step)

    def end(self, status: int, usage: resource.struct_rusage) -> None:
        """The process has ended."""
        self.status = status
        self.seconds = time.monotonic() - self.started
        self.cpu_seconds = usage.ru_utime + usage.ru_stime


def log_of(step: Step) -> Path:
    """The file with the output of a step."""
    return LOGS / (re.sub(r"\W+", "-", step.name) + ".log")


def start(step: Step) -> Run:
    """Starts a step in a process group of its own, so that all of it can be ended."""
    print(f"== {step.name}: started", flush=True)
    with log_of(step).open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", step.command or step.name],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, STEP_VARIABLE: step.name},
            start_new_session=True,
        )
    return Run(step=step, process=process)


def processes_of(step: Step) -> list[int]:
    """The processes of a step, also those that have a session of their own: all inherit its name."""
    name = f"{STEP_VARIABLE}={step.name}".encode()
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # has ended meanwhile
            if name in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
    return pids


def stop(run: Run, signal_number: int) -> None:
    """Signals all processes of a step."""
    for pid in processes_of(run.step):
        with suppress(ProcessLookupError):
            os.kill(pid, signal_number)


def look(run: Run) -> bool:
    """Whether a step has ended. One that takes longer than its limit is ended."""
    pid, status, usage = os.wait4(run.process.pid, os.WNOHANG)
    if pid:
        run.end(os.waitstatus_to_exitcode(status), usage)
        run.process.returncode = run.status
        stop(run, signal.SIGKILL)  # processes that it has left
        return True
    late = time.monotonic() - run.started - 60 * run.step.minutes
    if late > 0:
        if late < 1:
            with run.log.open("ab") as log:
                log.write(f"\nended after {run.step.minutes} minutes, which is its limit\n".encode())
        stop(run, signal.SIGTERM if late < 30 else signal.SIGKILL)
    return False


def show(run: Run) -> None:
    """Prints what a step printed."""
    verdict = "passed" if run.status == 0 else f"FAILED with status {run.status}"
    print(f"\n== {run.step.name}: {verdict} in {run.seconds:.0f} s\n", flush=True)
    with run.log.open("rb") as log:
        shutil.copyfileobj(log, sys.stdout.buffer)
    sys.stdout.flush()


def run_steps(steps: Sequence[Step]) -> tuple[list[Run], list[Step]]:
    """Runs each step when there are cores for it and what it needs has passed; returns those left out, too."""
    waiting, running, ended, left_out = list(steps), list[Run](), list[Run](), list[Step]()
    try:
        while waiting or running:
            for run in [run for run in running if look(run)]:
                running.remove(run)
                ended.append(run)
                show(run)
            over = {run.step.name for run in ended}
            failed = {run.step.name for run in ended if run.status and run.step.installs}
            failed |= {step.name for step in left_out}
            for step in list(waiting):
                needed = {name for name in step.after if any(name == other.name for other in steps)}
                if needed & failed:
                    print(f"== {step.name}: left out, because {', '.join(sorted(needed & failed))} failed", flush=True)
                    left_out.append(step)
                    waiting.remove(step)
                elif needed <= over and sum(run.step.cores for run in running) + step.cores <= CORES:
                    running.append(start(step))
                    waiting.remove(step)
            time.sleep(LOOK_SECONDS)
    finally:
        for run in running:
            stop(run, signal.SIGTERM)
    return ended, left_out


def reports(verdict: str) -> list[tuple[str, Path]]:
    """The first line of each report of a test with this verdict, and the report."""
    lines = []
    for path in sorted(FAILURES.glob("*/report.txt")):
        with path.open(errors="replace") as file:
            line = file.readline().rstrip()
        if line.startswith(verdict):
            lines.append((line, path))
    return lines


def last_log_lines(report: Path, most: int) -> list[str]:
    """The last warnings and errors that brokers logged, as far as the test kept them."""
    lines: list[str] = []
    for path in [report, *sorted(report.parent.glob("files/**/*.log"))]:
        lines += [line.strip() for line in path.read_text(errors="replace").splitlines() if LOG_LINE.search(line)]
    return lines[-most:]


def summary(runs: Sequence[Run], left_out: Sequence[Step], seconds: float) -> Iterator[str]:
    """All that is needed to mend what failed, in few lines."""
    flaky, failed = reports("FLAKY"), reports("FAILED")
    yield "== durations (wall, CPU)"
    for run in runs:
        verdict = "passed" if run.status == 0 else "FAILED"
        yield f"{run.seconds:6.0f} s {run.cpu_seconds:6.0f} s  {verdict}  {run.step.name}"
    yield from (f"                    left out  {step.name}" for step in left_out)
    yield f"{seconds:6.0f} s in all"
    room = LINES_MAX - len(runs) - len(left_out) - 6
    broken = [run for run in runs if run.status]
    details: list[str] = [line[:300] for line, _ in flaky]
    for line, path in failed:
        details.append(line[:300])
        details += [f"    {logged[:200]}" for logged in last_log_lines(path, 2)]
    if not failed:
        for run in broken:
            details += [
                f"{run.step.name}: {line[:200]}" for line in run.log.read_text(errors="replace").splitlines()[-6:]
            ]
    yield from details[:room]
    if len(details) > room:
        yield f"and {len(details) - room} more lines in build/failures and build/ci"
    if len(flaky) > FLAKY_MAX:
        yield f"{len(flaky)} tests are FLAKY: more than {FLAKY_MAX} fail the run"


def counts(runs: Sequence[Run]) -> dict[str, int]:
    """How many tests passed, failed and were skipped, by the closing lines of all pytest runs."""
    numbers = {"passed": 0, "failed": 0, "skipped": 0}
    for run in runs:
        for line in run.log.read_text(errors="replace").splitlines():
            if re.search(r"\b(passed|failed)\b.* in [\d.]+s", line):
                for number, word in TESTS.findall(line):
                    numbers["failed" if word.startswith("error") else word] += int(number)
    return numbers


def main(all_steps: Sequence[Step] = STEPS) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Everything that must pass before a change is merged.")
    parser.add_argument("steps", nargs="*", metavar="STEP", help="run only these steps, for example 'make test-sim'")
    chosen = parser.parse_args().steps
    unknown = set(chosen) - {step.name for step in all_steps}
    if unknown:
        parser.error(
            f"no such step: {', '.join(sorted(unknown))}; there are: {', '.join(step.name for step in all_steps)}"
        )
    steps = [step for step in all_steps if not chosen or step.name in chosen]
    for folder in (LOGS, FAILURES):
        shutil.rmtree(folder, ignore_errors=True)
    LOGS.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs is stopped, too
    started = time.monotonic()
    runs, left_out = run_steps(steps)
    print()
    for line in summary(runs, left_out, time.monotonic() - started):
        print(line)
    tests = counts(runs)
    is_good = not left_out and all(run.status == 0 for run in runs) and len(reports("FLAKY")) <= FLAKY_MAX
    print(f"{tests['passed']} passed, {tests['failed']} failed, {tests['skipped']} skipped")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
