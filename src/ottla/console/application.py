"""Assembles the console: the parts behind all pages, the table of pages, and the Starlette application."""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from ottla.console.cluster.access import Access, UserClients
from ottla.console.cluster.audit import AuditLog
from ottla.console.cluster.jobs import Jobs
from ottla.console.cluster.result_files import ResultFiles
from ottla.console.cluster.sampler import Sampler
from ottla.console.history.prometheus import Prometheus
from ottla.console.oidc.flow import LoginFlow
from ottla.console.oidc.provider import Provider
from ottla.console.pages import (
    audit,
    brokers,
    dead_letters,
    groups,
    jobs,
    login,
    overview,
    pipelines,
    queues,
    records,
    schemas,
    search,
    security,
    topics,
    transactions,
)
from ottla.console.settings import AuthMode, ConsoleSettings
from ottla.console.web.failures import on_error
from ottla.console.web.guard import Guard
from ottla.console.web.human import plural, time_text
from ottla.console.web.login import LoginLimiter
from ottla.console.web.pages import ROOM
from ottla.console.web.sessions import Sessions
from ottla.model.errors import OttlaError
from ottla.transport.refusal_log import RefusalLog

PAGES: Final = (
    overview,
    brokers,
    topics,
    records,
    groups,
    transactions,
    dead_letters,
    queues,
    schemas,
    pipelines,
    security,
    search,
    jobs,
    audit,
    login,
)
"""The modules of pages, each with its `routes`. A route of an earlier page is matched first."""
_LOGGER: Final = logging.getLogger(__name__)
_SWEEP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of the cluster in one word and one sentence."""

    level: str
    """ok, warning, error or unknown."""
    word: str
    sentence: str


class Console:
    """One console: what lives as long as its process."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings: Final = settings
        self.audit: Final = AuditLog(settings.audit_file, now_ms)
        self.jobs: Final = Jobs(now_ms, ResultFiles(settings.export_folder, settings.export_bytes_max))
        self.sampler: Final = Sampler(now_ms, settings.sample_seconds, settings.metrics_urls)
        self.prometheus: Final = (
            None if settings.prometheus is None else Prometheus(settings.prometheus, time.monotonic)
        )
        """Where charts get their past from."""
        self.sessions: Final = Sessions(settings, time.monotonic)
        self.limiter: Final = LoginLimiter(time.monotonic)
        self.refusals: Final = RefusalLog(what="request")
        """Of logins."""
        self.provider: Final = None if settings.oidc is None else Provider(settings.oidc)
        """The identity provider with which people sign in."""
        self.login_flow: Final = LoginFlow(time.time)
        login = None
        if settings.registry_username is not None and settings.registry_password is not None:
            login = (settings.registry_username, settings.registry_password)
        self.own_clients: Final = UserClients(settings, settings.client_options, login)
        """The console's own clients: for samples, and for pages if users do not sign in."""
        self.app: Final = self._application()

    def access(self, user: str, origin: str, clients: UserClients) -> Access:
        """What one request may use."""
        return Access(
            settings=self.settings,
            user=user,
            origin=origin,
            clients=clients,
            audit=self.audit,
            jobs=self.jobs,
            sampler=self.sampler,
            prometheus=self.prometheus,
        )

    @property
    def samples(self) -> bool:
        """Whether the console can sample: with sign-in, only if it has a user of its own."""
        return self.settings.auth is AuthMode.NONE or "sasl_mechanism" in self.settings.client_options

    @property
    def cluster_name(self) -> str:
        """The name in the top line."""
        if self.settings.name:
            return self.settings.name
        view = self.sampler.view
        return self.settings.bootstrap if view is None or view.cluster_id is None else view.cluster_id

    def health(self) -> Health:
        """The health dot: what the last sample found."""
        status, problems = self.sampler.status, self.sampler.problems
        if status.silent_since_ms is not None:
            since = time_text(status.silent_since_ms)
            return Health(level="error", word="no answer", sentence=f"No broker answers since {since}: {status.error}")
        if not self.samples:
            return Health(
                level="unknown", word="not checked", sentence="The console has no user of its own to check it."
            )
        if problems is None:
            return Health(level="unknown", word="checking", sentence="The cluster has not been checked yet.")
        if not problems:
            return Health(level="ok", word="healthy", sentence="The cluster is healthy.")
        word = plural(len(problems), "problem")
        first = max(problems, key=lambda each: each.is_severe)
        level = "error" if first.is_severe else "warning"
        if self.settings.auth is not AuthMode.NONE:
            # Problems name topics that the signed-in user may not describe.
            return Health(level=level, word=word, sentence=f"The cluster has {word}.")
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        return Health(level=level, word=word, sentence=f"{first.text}{more}")

    @staticmethod
    @cache
    def asset(name: str) -> str:
        """The address of an asset; it changes with its content, so that browsers may keep it."""
        digest = hashlib.sha256((ROOM / "assets" / name).read_bytes()).hexdigest()
        return f"/assets/{name}?v={digest[:12]}"

    def _application(self) -> Starlette:
        made = Starlette(
            routes=[
                *(route for page in PAGES for route in page.routes),
                Mount("/assets", _Assets(directory=ROOM / "assets"), name="assets"),
            ],
            middleware=[Middleware(Guard, console=self)],
            exception_handlers={HTTPException: on_error, OttlaError: on_error, Exception: on_error},
            lifespan=self._lifespan,
        )
        made.state.console = self
        return made

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.audit.open()
        tasks = [asyncio.create_task(self._sweep())]
        if self.samples:
            tasks.append(asyncio.create_task(self.sampler.run(self.own_clients.admin())))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.jobs.close()
            await self.sessions.close()
            await self.own_clients.release()
            if self.prometheus is not None:
                await self.prometheus.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                self.refusals.report_counted(time.monotonic())
                self.jobs.remove_old_files()
                await self.sessions.renew_tokens()
                await self.sessions.end_expired()
            except Exception:
                # Sessions would not end any more if this did.
                _LOGGER.exception("sessions and files that are over could not be removed; trying again")


class _Assets(StaticFiles):
    """Files that browsers may keep: their addresses change with their content."""

    def file_response(self, *args: Any, **kwargs: Any) -> Any:
        """The file, to be kept."""
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def now_ms() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
