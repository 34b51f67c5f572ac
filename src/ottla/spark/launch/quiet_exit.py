"""Lets Python processes of Spark end without a traceback when Spark closes their connection.

Spark ends a Python process by closing the connection to it. Over TCP the last write of that process is ignored. Over a
Unix domain socket, which `session.py` enables, it raises an error, and the process prints a traceback although nothing
is wrong. This module has no effect over TCP, in processes that Spark did not start, or on other failures.
"""

import logging
import os
import sys
import traceback
from typing import Any, Final

_DAEMON: Final = "pyspark.daemon"
_SOURCE_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


def expect_in_daemon() -> None:
    """In a worker of Spark's daemon: does not print a traceback when Spark closes the connection.

    May be called repeatedly and in any process.
    """
    main = sys.modules["__main__"]
    if _program() == _DAEMON and getattr(main, "traceback", None) is traceback:
        main.traceback = _Traces()  # type: ignore[attr-defined]


def end_source_runner() -> None:
    """In the process of a stream source, while it stops: exits if Spark has closed the connection."""
    if _program() == _SOURCE_RUNNER and isinstance(sys.exc_info()[1], EOFError):
        logging.shutdown()
        os._exit(0)


def _program() -> str | None:
    """The module that this process runs, if Spark started it with a Unix domain socket."""
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        return None
    found = getattr(sys.modules["__main__"], "__spec__", None)
    return None if found is None else str(found.name)


class _Traces:
    """The module `traceback` for the daemon, without output for a broken pipe."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        """Prints the exception, unless Spark has closed the connection."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()
