"""The workers of `etl.py` as processes: one for each transactional id, killed, stopped and replaced.

A worker that is stopped for a while and finds its place taken when it goes on is a zombie: it must end as fenced, and
nothing that it still tries may show. A worker that ends in any other way than by a kill, or fenced, is a failure.
"""

import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.crash.etl import FENCED, Job
from tests.processes import Program
from tests.waiting import PATIENCE_SECONDS, wait_until


class WorkerProcess(Program):
    """One worker. What it prints is noticed at once, so that others can be killed in the same phase."""

    def __init__(self, job: Job, files: Path, heard: "Heard") -> None:
        super().__init__(job.command(), files, output=subprocess.PIPE)
        self.said: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._listen, args=(heard,), daemon=True)
        self._thread.start()

    def _listen(self, heard: "Heard") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            phase = line.decode().strip()
            self.said[phase] += 1
            heard.on_phase(phase)

    @property
    def log_end(self) -> str:
        """The last lines of its log, but for those about connections, of which there are many."""
        lines = self.log.splitlines()
        return "\n".join([self._log.name, *[line for line in lines if "|FAIL|" not in line][-20:]])

    def kill(self) -> int:
        """Ends it at once, and returns how it ended, which may have been before."""
        status = super().kill()
        self._thread.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status


class Heard:
    """What all workers said, counted; others wait for more of it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._changed = threading.Condition()

    def on_phase(self, phase: str) -> None:
        """A worker said this."""
        with self._changed:
            self._counts[phase] += 1
            self._changed.notify_all()

    def count(self, phase: str) -> int:
        """How often it was said."""
        with self._changed:
            return self._counts[phase]

    def wait(self, phase: str, more: int = 1) -> None:
        """Returns once it was said so many times more."""
        with self._changed:
            wanted = self._counts[phase] + more
            if not self._changed.wait_for(lambda: self._counts[phase] >= wanted, PATIENCE_SECONDS):
                raise TimeoutError(f"no worker got to {phase!r} in {PATIENCE_SECONDS} s; so far {dict(self._counts)}")


class Fleet:
    """A worker for each job; a context manager that starts them and leaves none behind."""

    def __init__(self, jobs: Sequence[Job], folder: Path) -> None:
        self.heard = Heard()
        self.fenced = 0
        """How many workers ended because another had taken their id."""
        self._jobs = jobs
        self._folder = folder
        self._workers: list[WorkerProcess] = []
        self._zombies: list[WorkerProcess] = []
        self._started = 0

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._workers = [self._start(job) for job in self._jobs]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self._workers, *self._zombies):
            worker.kill()

    def __len__(self) -> int:
        return len(self._jobs)

    def kill(self, at: int) -> None:
        """Ends a worker in the middle of whatever it does, and starts another with its id."""
        status = self._workers[at].kill()
        if status != -signal.SIGKILL:
            raise AssertionError(f"a worker ended with {status}:\n{self.log_end()}")
        self._workers[at] = self._start(self._jobs[at])

    def replace_stopped(self, at: int) -> None:
        """Stops a worker, lets another take its id over, and lets the first go on as a zombie."""
        zombie = self._workers[at]
        # One that is stopped before it has the id would take it from the other afterwards, and rightly so.
        self._wait_ready(zombie)
        zombie.pause()
        self._zombies.append(zombie)
        self._workers[at] = self._start(self._jobs[at])
        self._wait_ready(self._workers[at])
        zombie.resume()

    def _wait_ready(self, worker: WorkerProcess) -> None:
        def is_ready() -> int:
            self.check()
            return worker.said["ready"]

        wait_until(is_ready, lambda: f"a worker is ready:\n{self.log_end()}")

    def check(self) -> None:
        """Raises if a worker has ended by itself; a zombie may, but only because it is fenced."""
        ended = [worker.process.poll() for worker in self._workers]
        ended += [status for zombie in self._zombies if (status := zombie.process.poll()) != FENCED]
        if any(status is not None for status in ended):
            raise AssertionError(f"workers ended with {ended}:\n{self.log_end()}")

    def wait_zombies_fenced(self) -> None:
        """Returns once every zombie has learnt that it is one."""
        for zombie in self._zombies:
            assert FENCED == zombie.wait(), zombie.log_end
            zombie.kill()
            self.fenced += 1
        self._zombies = []

    def finish(self) -> None:
        """Lets every worker end the transaction that it is in, and then itself."""
        for worker in self._workers:
            # One that has only just been started would not take the signal for a wish.
            self._wait_ready(worker)
        for worker in self._workers:
            worker.send(signal.SIGTERM)
        ended = [worker.wait() for worker in self._workers]
        assert [0] * len(ended) == ended, self.log_end()

    def log_end(self) -> str:
        """The last words of those that there are."""
        return "\n".join(worker.log_end for worker in (*self._workers, *self._zombies))

    def _start(self, job: Job) -> WorkerProcess:
        self._started += 1
        return WorkerProcess(job, self._folder / f"{self._started:03}-{job.transactional_id}", self.heard)
