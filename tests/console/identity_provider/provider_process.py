"""The provider's process: started, asked to end logins, killed, and started again at the same address."""

import json
from pathlib import Path
from typing import Final, Self

from ottla.testing.free_ports import consecutive_free_ports
from tests.compat.kafka_jars import program
from tests.console.identity_provider import packages
from tests.processes import Program
from tests.waiting import wait_until

CLIENT: Final = "console"
SECRET: Final = "se:cret/+%41"
AUDIENCE: Final = "brokers"
_HERE: Final = Path(__file__).parent


class ProviderProcess:
    """An identity provider for one console; use as a context manager. Each start has new keys, and knows no login."""

    def __init__(self, folder: Path, console_url: str, *, lifetime_seconds: int) -> None:
        """`lifetime_seconds` is that of access tokens."""
        self.port = consecutive_free_ports(1)
        self._files = folder / "identity-provider"
        self._settings = {
            "port": self.port,
            "client": CLIENT,
            "secret": SECRET,
            "console": console_url,
            "audience": AUDIENCE,
            "lifetime_seconds": lifetime_seconds,
        }
        self._program: Program | None = None

    @property
    def url(self) -> str:
        """The issuer: another site than 127.0.0.1, for a browser."""
        return f"http://localhost:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts it, and returns when it answers."""
        command = [program("node"), str(_HERE / "provider.mjs"), str(packages()), json.dumps(self._settings)]
        self._program = Program(command, self._files, has_input=True)
        self._program.wait_ready()

    def kill(self) -> None:
        """Kills it."""
        if self._program is not None:
            self._program.kill()

    def revoke(self, user: str) -> None:
        """Ends the logins of a user, as an administrator would."""
        assert self._program is not None
        seen = self.count(f"revoked {user}")
        self._program.write(f"revoke {user}")
        self.wait_event(f"revoked {user}", seen)

    def count(self, event: str) -> int:
        """How often it has said this, such as `renewed alice`, since it was started."""
        assert self._program is not None
        return sum(line.startswith(event) for line in self._program.printed().splitlines())

    def wait_event(self, event: str, seen: int) -> None:
        """Returns when it has said this more often than `seen` times."""
        program = self._program
        assert program is not None
        wait_until(lambda: self.count(event) > seen, lambda: f"{event!r}: {program.printed()}; {program.log_end}")
