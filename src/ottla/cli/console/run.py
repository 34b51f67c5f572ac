"""Runs the console until SIGTERM, Ctrl-C, or the end of the process that started it."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from ottla.client.loop_thread import new_event_loop
from ottla.console.serving import ServedConsole
from ottla.console.settings import AuthMode, ConsoleSettings, OidcSettings
from ottla.model.errors import MisuseError

if TYPE_CHECKING:
    from ottla.cli.profile.store import Connection

_LOGGER: Final = logging.getLogger(__name__)
_AUDIT_FILE: Final = "console-audit.jsonl"


def audit_file(environment: Mapping[str, str]) -> Path:
    """Where changes are recorded if no file is named: the folder for what programs remember of this user."""
    state = environment.get("XDG_STATE_HOME")
    folder = Path(state) if state else Path(environment.get("HOME") or "~").expanduser() / ".local" / "state"
    return folder / "ottla" / _AUDIT_FILE


def command_options(connection: "Connection") -> tuple[str, ...]:
    """What commands on the pages need to reach the same cluster."""
    words = [f"--bootstrap={connection.bootstrap}"]
    if connection.command_config is not None:
        words.append(f"--command-config={connection.command_config}")
    return tuple(words)


def split_login(urls: str | None) -> tuple[str | None, str | None, str | None]:
    """The URLs of a registry (separated by commas) without the login in them, and the login: user and password."""
    if urls is None:
        return None, None, None
    bare: list[str] = []
    user = password = None
    for url in urls.split(","):
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MisuseError(f"--registry {url}: write it as http://HOST:PORT")
        user, password = user or parts.username, password or parts.password
        bare.append(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    return ",".join(bare), user, password


def oidc_settings(
    issuer: str | None,
    client_id: str | None,
    client_secret_file: Path | None,
    *,
    scope: str,
    audience: str | None,
    user_claim: str,
    redirect_url: str | None,
) -> OidcSettings | None:
    """The identity provider of the options; None without an issuer. Raises `MisuseError`."""
    if issuer is None:
        if client_id is not None or client_secret_file is not None:
            raise MisuseError("--oidc-issuer is missing: the URL of the identity provider")
        return None
    secret = None
    if client_secret_file is not None:
        try:
            secret = client_secret_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise MisuseError(f"--oidc-client-secret-file: cannot read {client_secret_file}: {error}") from None
        if not secret:
            raise MisuseError(f"--oidc-client-secret-file: {client_secret_file} is empty")
    return OidcSettings(
        issuer=issuer,
        client_id=client_id or "",
        client_secret=secret,
        scopes=tuple(scope.split()),
        audience=audience,
        user_claim=user_claim,
        redirect_url=redirect_url,
    )


def run(settings: ConsoleSettings, *, stops_with_stdin: bool) -> None:
    """Runs until it is stopped."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(settings, stops_with_stdin))


async def _run(settings: ConsoleSettings, stops_with_stdin: bool) -> None:
    for chatty in ("httpx", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    server = ServedConsole(settings)
    if settings.auth is not AuthMode.NONE and not settings.has_tls:
        what = "passwords" if settings.auth is AuthMode.CLUSTER else "session cookies"
        _LOGGER.warning("%s: %s are sent without encryption; set --tls-certificate", server.url, what)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    watching = asyncio.create_task(_until_stdin_closes(stop)) if stops_with_stdin else None

    def on_ready() -> None:
        # gc.freeze(): templates and modules live as long as the process and are left out of garbage collection.
        gc.collect()
        gc.freeze()
        print(f"ready {server.url}", flush=True)

    try:
        await server.run(stop, on_ready)
    finally:
        if watching is not None:
            watching.cancel()


async def _until_stdin_closes(stop: asyncio.Event) -> None:
    """Stops when the process that started this one has ended, however it ended."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    with suppress(OSError, ValueError):
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while await reader.read(1024):
            pass
    stop.set()
