"""Runs `member_program.py` and keeps what it tells."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

TIMEOUT_S: Final = 60.0
LOOK_SECONDS: Final = 0.02


class Member:
    """One member; ends with the block, or by `kill`."""

    def __init__(self, bootstrap: str, topics: Sequence[str], folder: Path, **options: Any) -> None:
        asked = json.dumps({"topics": list(topics), "options": {"bootstrap_servers": bootstrap, **options}})
        self.events: list[dict[str, Any]] = []
        self._log = (folder / f"member-{time.monotonic_ns()}.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.compat.client_suite.member_program", asked],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(json.loads(line))

    @property
    def owned(self) -> set[int]:
        """The partitions that it has, by what it told."""
        owned: set[int] = set()
        for event in list(self.events):
            if event["event"] == "assigned":
                owned |= set(event["partitions"])
            elif event["event"] in ("revoked", "lost"):
                owned -= set(event["partitions"])
        return owned

    @property
    def generation(self) -> int | None:
        """Its generation, or member epoch; None while it has not told that its listener was called for it."""
        told = [event for event in list(self.events) if event["event"] != "read"]
        return told[-1]["number"] if told and told[-1]["event"] == "generation" else None

    def read(self) -> set[tuple[int, int]]:
        """(partition, offset) of everything that it read."""
        return {
            (event["partition"], offset)
            for event in list(self.events)
            if event["event"] == "read"
            for offset in range(event["first"], event["end"])
        }

    def kill(self) -> None:
        """Ends it at once, as a crash would."""
        self._process.kill()
        self._process.wait()
        self._reading.join()
        self._log.close()

    def pause(self) -> None:
        """It stops polling, until `resume`."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"pause\n")
        self._process.stdin.flush()

    def resume(self) -> None:
        """It polls again."""
        self.pause()

    def close(self) -> None:
        """It leaves its group; one that does not end is killed, and that is a failure."""
        if self._process.poll() is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            self.kill()
