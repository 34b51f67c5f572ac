"""From a command line to an exit status: loads one command, runs its work on a cluster, and reports errors.

Every command's body runs inside `run_with_cluster` or `guarded`, so that errors become messages, not tracebacks.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from ottla.cli.command_config import with_command_config
from ottla.cli.help_pages import HelpfulCommand, HelpfulGroup, examples
from ottla.cli.output import say
from ottla.model.errors import MisuseError, OttlaError

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster

__all__ = ["CONTEXT", "ExitStatus", "application", "examples", "guarded", "run_command", "run_loop", "run_with_cluster"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
"""For `context_settings` of a command that stands alone; those of a group inherit it."""


_SECURITY: Final = "security.protocol"
_HOW_TO_SET: Final = "--command-config FILE names a file with such properties (docs/security.md)"


class ExitStatus(IntEnum):
    """What the command's end means."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130
    TERMINATED = 143


class TerminatedError(Exception):
    """SIGTERM ended the command."""


class Application(typer.Typer):
    """A Typer application whose commands have this program's help pages."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """Registers a command, as Typer does. One that connects to brokers gets `--command-config`."""
        register = super().command(name, cls=HelpfulCommand, **options)

        def decorate(function: F) -> F:
            register(with_command_config(function))
            return function

        return decorate


def application(words: str) -> Application:
    """An application with plain help pages, Ottla's own completion, and plain tracebacks."""
    return Application(
        help=words,
        cls=HelpfulGroup,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
    )


def run_command(name: str, arguments: Sequence[str]) -> int:
    """Runs `ottla.cli.<name>.command` with the rest of the command line."""
    module = import_module(f"ottla.cli.{name}.command")
    command = typer.main.get_command(module.app)
    outcome = command.main(list(arguments), prog_name=f"ottla {name}", standalone_mode=True)
    return int(outcome or 0)


def run_with_cluster(
    bootstrap: str | None,
    profile: str | None,
    work: "Callable[[Cluster], Awaitable[int | None]]",
    *,
    in_bulk: bool = False,
    shows_progress: bool = False,
    request_timeout_ms: int | None = None,
) -> None:
    """Runs the work with a cluster and ends the command with its status.

    `in_bulk` is for work that moves many bytes. It shows its own progress, as does work with `shows_progress`; for
    other work a line says on a terminal which brokers it waits for.
    """
    with guarded():
        from ottla.cli.profile.store import chosen_connection
        from ottla.cli.progress import waiting
        from ottla.client.errors import CannotConnectError, ConnectionLostError
        from ottla.client.network.cluster import Cluster
        from ottla.transport.addresses import parse_bootstrap

        _show_warnings()
        connection = chosen_connection(bootstrap, profile)
        addresses = parse_bootstrap(connection.bootstrap)

        async def with_cluster() -> int:
            async with Cluster(
                addresses,
                client_id=connection.client_id,
                security=connection.security,
                connect_timeout_ms=connection.connect_timeout_ms,
                request_timeout_ms=request_timeout_ms or connection.request_timeout_ms,
            ) as cluster:
                if in_bulk or shows_progress:
                    return await work(cluster) or ExitStatus.DONE
                async with waiting(connection.bootstrap):
                    return await work(cluster) or ExitStatus.DONE

        try:
            status = run_loop(with_cluster(), in_bulk=in_bulk)
        except (CannotConnectError, ConnectionLostError) as error:
            words = str(error) if connection.profile is None else f"profile {connection.profile}: {error}"
            if connection.command_config is None and _SECURITY in words:
                words += f"; {_HOW_TO_SET}"
            raise type(error)(words) from error
    raise typer.Exit(status)


def _show_warnings() -> None:
    """Prints warnings of the client library as remarks; Python's own handler would not escape names."""
    import logging

    class Remarks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(f"ottla: {record.getMessage()}")

    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.WARNING, handlers=[Remarks()])


def run_loop(work: Coroutine[Any, Any, T], *, in_bulk: bool = False) -> T:
    """Runs a coroutine to its end, on the faster loop if it is worth the import. SIGTERM cancels it, as Ctrl-C does."""
    import asyncio

    loop_factory = None
    if in_bulk:
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_until_terminated(work))


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    import asyncio
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        return await work
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    is_terminated = False

    def on_signal(*_: object) -> None:
        nonlocal is_terminated
        is_terminated = True
        # A second signal ends the process at once, whatever it waits for.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if task is not None:
            loop.call_soon_threadsafe(task.cancel)

    earlier = signal.signal(signal.SIGTERM, on_signal)
    try:
        return await work
    except asyncio.CancelledError:
        if is_terminated:
            raise TerminatedError from None
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if earlier is None else earlier)


@contextmanager
def guarded() -> Iterator[None]:
    """Turns errors into messages on stderr and an exit status."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        raise typer.Exit(ExitStatus.INTERRUPTED) from None
    except TerminatedError:
        raise typer.Exit(ExitStatus.TERMINATED) from None
    except BrokenPipeError:
        # The reader of our output closed the pipe; the interpreter must not try to flush it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitStatus.DONE) from None
    except OttlaError as error:
        raise _told(error, _status_of(error)) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        raise _told(error, ExitStatus.REFUSED, f"{name}{error.strerror or error}") from None


def _told(error: Exception, status: ExitStatus, words: str | None = None) -> typer.Exit:
    if os.environ.get("OTTLA_DEBUG"):
        import traceback

        traceback.print_exception(error)
    # An error that found several problems has a line for each of them.
    lines = [str(each) for each in getattr(error, "problems", ())] or [words or str(error)]
    lines[0] = f"ottla: {lines[0]}"
    remark = getattr(error, "remark", None)
    say(*lines, *([remark] if remark else []))
    return typer.Exit(status)


def _status_of(error: OttlaError) -> ExitStatus:
    from ottla.client.errors import CannotConnectError, ConnectionLostError
    from ottla.transport.addresses import BadAddressError

    if isinstance(error, CannotConnectError | ConnectionLostError):
        return ExitStatus.UNREACHABLE
    return ExitStatus.USAGE if isinstance(error, BadAddressError | MisuseError) else ExitStatus.REFUSED
