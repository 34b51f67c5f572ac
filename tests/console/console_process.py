"""A console as its own process, as a user starts it, and a client that sends its forms without a browser."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.processes import OTTLA, Program

_TOKEN = re.compile(r'<meta name="csrf-token" content="([0-9a-f]+)">')


class ConsoleProcess:
    """`ottla console` on a free port. Its log is a file in its folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.url = ""
        self.program: Program | None = None

    @property
    def log(self) -> str:
        """The whole log."""
        return (self.folder / "console.log").read_text()

    @property
    def audit(self) -> Path:
        """The audit log."""
        return self.folder / "audit.jsonl"

    def start(self) -> None:
        """Starts it and returns when it is ready."""
        port = self.url.rpartition(":")[2] or "0"
        given = [] if "--listen" in self.options else ["--listen", f"127.0.0.1:{port}"]
        command = [*OTTLA, "console", *given, "--audit-log", self.audit, *self.options]
        self.program = Program(command, self.folder / "console")
        self.url = self.program.wait_ready()

    def stop(self) -> None:
        """Stops it cleanly; kills it if it does not stop."""
        if self.program is not None:
            with self.program as program:
                assert 0 == program.stop(), self.log

    def kill(self) -> None:
        """Ends it at once."""
        if self.program is not None:
            self.program.kill()


@contextmanager
def running_console(folder: Path, *options: str) -> Iterator[ConsoleProcess]:
    """A console with these options of `ottla console`."""
    console = ConsoleProcess(folder, *options)
    try:
        console.start()
        yield console
        console.stop()
    finally:
        console.kill()


class FormClient:
    """Sends requests as a browser would, with cookie, origin and token, but without one."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=30, **options)
        self.token = ""

    def get(self, path: str, **options: Any) -> httpx.Response:
        """A page; redirects are not followed."""
        response = self.client.get(path, **options)
        found = _TOKEN.search(response.text) if "html" in response.headers.get("content-type", "") else None
        if found is not None:
            self.token = found[1]
        return response

    def post(
        self, path: str, fields: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Sends a form, with the token of a page that was loaded before."""
        if not self.token:
            self.get("/")
        return self.client.post(
            path,
            data={"csrf": self.token, **(fields or {})},
            headers={"Origin": self.url, "Sec-Fetch-Site": "same-origin", **(headers or {})},
        )

    def close(self) -> None:
        """Closes its connections."""
        self.client.close()
