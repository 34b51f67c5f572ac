"""The provider's process: started, asked to end logins, killed, and started again at the same address."""

import json
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ottla.testing.free_ports import consecutive_free_ports
from tests.compat.kafka_jars import program
from tests.console.identity_provider import packages

CLIENT: Final = "console"
SECRET: Final = "se:cret/+%41"
AUDIENCE: Final = "brokers"
_HERE: Final = Path(__file__).parent
_EVENT_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 30


class ProviderProcess:
    """An identity provider for one console; use as a context manager. Each start has new keys, and knows no login."""

    def __init__(self, folder: Path, console_url: str, *, lifetime_seconds: int) -> None:
        """`lifetime_seconds` is that of access tokens."""
        self.port = consecutive_free_ports(1)
        self._log = folder / "identity-provider.log"
        self._settings = {
            "port": self.port,
            "client": CLIENT,
            "secret": SECRET,
            "console": console_url,
            "audience": AUDIENCE,
            "lifetime_seconds": lifetime_seconds,
        }
        self._process: subprocess.Popen[str] | None = None
        self._events: list[str] = []
        self._news = threading.Condition()

    @property
    def url(self) -> str:
        """The issuer: another site than 127.0.0.1, for a browser."""
        return f"http://localhost:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Starts it, and returns when it answers."""
        command = [program("node"), str(_HERE / "provider.mjs"), str(packages()), json.dumps(self._settings)]
        seen = self.count("ready")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        self.wait_event("ready", seen)

    def kill(self) -> None:
        """Kills it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_TIMEOUT_S)
            self._process = None

    def revoke(self, user: str) -> None:
        """Ends the logins of a user, as an administrator would."""
        assert self._process is not None
        assert self._process.stdin is not None
        seen = self.count(f"revoked {user}")
        self._process.stdin.write(f"revoke {user}\n")
        self._process.stdin.flush()
        self.wait_event(f"revoked {user}", seen)

    def count(self, event: str) -> int:
        """How often it said this, such as `renewed alice`."""
        with self._news:
            return sum(each.startswith(event) for each in self._events)

    def wait_event(self, event: str, seen: int) -> None:
        """Returns when it has said this more often than `seen` times."""
        with self._news:
            come = self._news.wait_for(
                lambda: sum(each.startswith(event) for each in self._events) > seen, _EVENT_TIMEOUT_S
            )
            assert come, f"no event {event!r}: {self._events}; {self._log.read_text()}"

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._news:
                self._events.append(line.strip())
                self._news.notify_all()
