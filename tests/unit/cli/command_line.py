"""Runs `ottla` in this process as a shell would: arguments and stdin in, exit status, stdout and stderr out."""

import os
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from ottla.__main__ import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return msgspec.json.decode(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """The documents on stdout, one a line."""
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class CommandLine:
    """`ottla` with a broker to talk to."""

    def __init__(self, bootstrap: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self._capfd = capfd

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Runs one command; stdin is a file, so it is no terminal."""
        self._capfd.readouterr()
        before = os.environ.get("OTTLA_BOOTSTRAP")
        os.environ["OTTLA_BOOTSTRAP"] = self.bootstrap
        kept, kept_stdin = os.dup(0), sys.stdin
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            os.dup2(file.fileno(), 0)
            sys.stdin = os.fdopen(0, closefd=False)
            try:
                status: Any = main(arguments)
            except SystemExit as ended:
                status = ended.code
            finally:
                os.dup2(kept, 0)
                os.close(kept)
                sys.stdin = kept_stdin
                os.environ.pop("OTTLA_BOOTSTRAP")
                if before is not None:
                    os.environ["OTTLA_BOOTSTRAP"] = before
        sys.stdout.flush()
        out, err = self._capfd.readouterr()
        return Done(status=int(status or 0), out=out, err=err)

    def ok(self, *arguments: str, stdin: bytes = b"") -> Done:
        """The same for a command that must succeed."""
        done = self(*arguments, stdin=stdin)
        assert (0, "") == (done.status, done.err if done.status else ""), done
        return done
