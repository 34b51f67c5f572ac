"""Lets Spark's Python processes end in silence when Spark hangs up.

Spark ends a Python process that it has no more use for by closing the connection to it. Over TCP the last words of that
process go nowhere. Over a socket of the file system, which `session.py` asks for, they are an error instead, and the
process tells it on the terminal, with a trace, though nothing is wrong. Nothing here has an effect over TCP, in
processes that Spark did not start, or on any other failure.
"""

import logging
import os
import sys
import traceback
from typing import Any, Final

_DAEMON: Final = "pyspark.daemon"
_SOURCE_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


def expect_in_daemon() -> None:
    """In a worker of Spark's daemon: a connection that Spark closed is its end, and not told as a failure.

    Harmless to call again, and in any other process.
    """
    main = sys.modules["__main__"]
    if _program() == _DAEMON and getattr(main, "traceback", None) is traceback:
        main.traceback = _Traces()  # type: ignore[attr-defined]


def end_source_runner() -> None:
    """In the process of a stream's source, while it stops: ends it if Spark has hung up. Else returns."""
    if _program() == _SOURCE_RUNNER and isinstance(sys.exc_info()[1], EOFError):
        logging.shutdown()
        os._exit(0)


def _program() -> str | None:
    """The module that this process runs, if it is one of Spark's on a socket of the file system."""
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        return None
    found = getattr(sys.modules["__main__"], "__spec__", None)
    return None if found is None else str(found.name)


class _Traces:
    """The module `traceback` as the daemon uses it, which tells nothing of a pipe that broke."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        """What ends the process, unless Spark has hung up."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()
