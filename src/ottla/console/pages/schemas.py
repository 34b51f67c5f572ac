"""`/schemas` and `/schemas/{subject}`: subjects, versions, comparisons, references, settings; check, register, delete.

Forms are at `/schemas/-/…?subject=`: a subject may have any name, so its page takes the whole rest of the path.
"""

import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.cluster.access import Access
from ottla.console.services import schemas
from ottla.console.services.schemas import LEVELS, MODES, SETTABLE_MODES, TYPES, Check, SubjectRow, UnknownSubjectError
from ottla.console.web.failures import outcome_of
from ottla.console.web.pages import (
    InvalidFormError,
    NotFoundError,
    console_of,
    form_of,
    path_of,
    render,
    see,
    text_of,
    unconfirmed,
)
from ottla.console.web.routes import SubpageRoute
from ottla.console.web.windows import window
from ottla.model.errors import OttlaError
from ottla.registry.schemas.schema import Schema
from ottla.registry.serde.errors import RegistryAnswerError, RegistryUnavailableError
from ottla.registry.state.qualified_subjects import DEFAULT_CONTEXT

if TYPE_CHECKING:
    from ottla.registry.serde.registry_client import AsyncRegistryClient

Page = Callable[[Request, Access, "AsyncRegistryClient"], Awaitable[Response]]
_ROOT: Final = "/schemas"
_REFUSED: Final = frozenset({401, 403})
_INHERITED: Final = ""
"""The value of a form that removes a subject's own level or mode."""


def of_registry(page: Page) -> Callable[[Request], Awaitable[Response]]:
    """A page that needs the registry; without one, or while it is away or refuses the user, a page that says so."""

    async def shown(request: Request) -> Response:
        access = console_of(request)
        registry = access.registry()
        if registry is None:
            return render(request, "schemas/none.html")
        url = ", ".join(registry.config.urls)
        try:
            return await page(request, access, registry)
        except RegistryUnavailableError as error:
            return render(request, "schemas/away.html", status=503, error=error, url=url)
        except UnknownSubjectError as error:
            raise NotFoundError(str(error)) from error
        except RegistryAnswerError as error:
            if error.status not in _REFUSED:
                raise
            return render(request, "schemas/denied.html", status=403, error=error, url=url)

    return shown


async def show_list(request: Request, access: Access, registry: "AsyncRegistryClient") -> Response:
    """All subjects."""
    found = await schemas.list_subjects(registry)
    kept = request.query_params.get("show", "active")
    context = request.query_params.get("context", "")

    def is_shown(row: SubjectRow) -> bool:
        return (kept == "all" or row.is_deleted == (kept == "deleted")) and context in ("", row.context)

    shown = window(
        request,
        filter(is_shown, found.rows),
        text=lambda row: f"{row.subject} {row.type} {row.id}",
        sorts={
            "subject": lambda row: (row.context, row.name.casefold()),
            "type": lambda row: row.type,
            "version": lambda row: row.version,
            "id": lambda row: row.id,
            "level": lambda row: row.level,
        },
        default="subject",
    )
    return render(
        request,
        "schemas/list.html",
        found=found,
        window=shown,
        show=kept,
        context=context,
        default_context=DEFAULT_CONTEXT,
        levels=LEVELS,
        modes=MODES,
        register_command=_command(registry, "register", "orders-value", "order.avsc"),
    )


async def show_subject(request: Request, access: Access, registry: "AsyncRegistryClient") -> Response:
    """One subject, one of its versions, and how it differs from another."""
    subject = request.path_params["subject"]
    view = await schemas.read_subject(registry, subject, _number(request, "version"))
    newer = view.find(_number(request, "to") or view.shown.version)
    chosen = _number(request, "from")
    older = view.find(chosen) if chosen is not None else view.before(newer.version)
    diff = None if older is None else schemas.compare_versions(older, newer)
    return render(
        request,
        "schemas/subject.html",
        view=view,
        older=older,
        newer=newer,
        diff=diff,
        uses=schemas.topics_using(subject, view.record_names, await _topics(access)),
        levels=LEVELS,
        modes=MODES,
        show_command=_command(registry, "show", subject, "--version", str(view.shown.version)),
        address=path_of("schemas", subject),
    )


async def register(request: Request, access: Access, registry: "AsyncRegistryClient") -> Response:
    """The form for a new version: checked first, then registered."""
    subject = request.query_params.get("subject", "")
    text, kind, references, check = "", "AVRO", "", None
    problem: InvalidFormError | None = None
    if request.method == "POST":
        form = await form_of(request)
        subject = text_of(form, "subject", "").strip()
        text, kind, references = (text_of(form, name, "") for name in ("schema", "type", "references"))
        try:
            wanted = _schema_of(form)
            check = await schemas.check_schema(registry, subject, wanted)
        except InvalidFormError as error:
            problem = error
        if form.get("do") == "register" and check is not None and check.can_register:
            details = {"type": kind, "version": check.next_version, "level": check.level}
            async with access.change("register schema", subject, details):
                made = await schemas.register_schema(registry, subject, wanted)
            return see(request, f"{path_of('schemas', subject)}?version={made.version}")
    elif subject:
        text, kind, references = await _latest(registry, subject)
    return render(
        request,
        "schemas/register.html",
        **({"status": _status_of(check)} if problem is None else outcome_of(problem)),
        subject=subject,
        text=text,
        kind=kind,
        types=TYPES,
        references=references,
        check=check,
        levels=LEVELS,
        check_command=_command(registry, "check", subject or "SUBJECT", _file(kind), "--type", kind.lower()),
        register_command=_command(registry, "register", subject or "SUBJECT", _file(kind), "--type", kind.lower()),
    )


async def delete(request: Request, access: Access, registry: "AsyncRegistryClient") -> Response:
    """Deletes a subject or one of its versions, softly or for good, after its name was typed."""
    subject = _subject(request)
    version = _number(request, "version")
    permanent = request.query_params.get("permanent") == "1"
    view = await schemas.read_subject(registry, subject, version)
    problem: InvalidFormError | None = None
    if request.method == "POST":
        problem = unconfirmed(await form_of(request), subject)
    if request.method == "POST" and problem is None:
        what = f"{'permanently ' if permanent else ''}delete {'subject' if version is None else 'schema version'}"
        details = {"permanent": permanent} if version is None else {"version": version, "permanent": permanent}
        async with access.change(what, subject, details):
            deleted = await schemas.delete_schemas(registry, subject, version, permanent=permanent)
        left = len(view.versions) - len(deleted) if permanent else len(view.versions)
        return see(request, path_of("schemas", subject) if left else _ROOT)
    words = ["delete", subject, *([] if version is None else ["--version", str(version)])]
    return render(
        request,
        "schemas/delete.html",
        **outcome_of(problem),
        view=view,
        version=version,
        permanent=permanent,
        affected=[
            each for each in view.versions if version in (None, each.version) and (permanent or not each.is_deleted)
        ],
        uses=schemas.topics_using(subject, view.record_names, await _topics(access)),
        command_text=_command(registry, *words, *(["--permanent"] if permanent else [])),
        action=_here(request),
    )


def _schema_of(form: FormData) -> Schema:
    """The schema in the form. Raises `InvalidFormError` if it, or the subject, is missing or wrong."""
    if not text_of(form, "subject").strip():
        raise InvalidFormError("subject must not be empty", "subject")
    if (kind := text_of(form, "type")) not in TYPES:
        raise InvalidFormError(f"type must be one of {', '.join(TYPES)}", "type")
    references = schemas.parse_references(text_of(form, "references", ""))
    return Schema(text=text_of(form, "schema"), type=kind, references=references)


async def level(request: Request, access: Access, registry: "AsyncRegistryClient") -> Response:
    """Changes the compatibility level of a subject, or of the registry as a whole."""
    subject = request.query_params.get("subject") or None
    now = await schemas.read_level(registry, subject)
    wanted = _choice(request, "level", (*LEVELS, _INHERITED))
    if request.method == "POST":
        if wanted is None:
            raise InvalidFormError("choose a level")
        async with access.change("set compatibility level", _target(subject), {"from": now.own, "to": wanted or None}):
            await schemas.set_level(registry, subject, wanted or None)
        return see(request, path_of("schemas", subject) if subject else _ROOT)
    option = ["--no-level"] if wanted == _INHERITED else ["--level", wanted or now.effective or "LEVEL"]
    return render(
        request,
        "schemas/level.html",
        subject=subject,
        now=now,
        wanted=wanted,
        levels=LEVELS,
        command_text=_command(registry, "config", *([subject] if subject else []), *option),
        action=_here(request),
    )


async def mode(request: Request, access: Access, registry: "AsyncRegistryClient") -> Response:
    """Changes the mode of a subject, or of the registry as a whole."""
    subject = request.query_params.get("subject") or None
    now = await schemas.read_mode(registry, subject)
    wanted = _choice(request, "mode", (*SETTABLE_MODES, _INHERITED))
    if request.method == "POST":
        if wanted is None:
            raise InvalidFormError("choose a mode")
        form = await form_of(request)
        async with access.change("set registry mode", _target(subject), {"from": now.own, "to": wanted or None}):
            await schemas.set_mode(registry, subject, wanted or None, force=form.get("force") == "1")
        return see(request, path_of("schemas", subject) if subject else _ROOT)
    option = ["--no-mode"] if wanted == _INHERITED else ["--mode", wanted or now.effective or "MODE"]
    return render(
        request,
        "schemas/mode.html",
        subject=subject,
        now=now,
        wanted=wanted,
        modes=MODES,
        settable=SETTABLE_MODES,
        command_text=_command(registry, "config", *([subject] if subject else []), *option),
        action=_here(request),
    )


async def _topics(access: Access) -> list[str] | None:
    try:
        return await access.admin().list_topics()
    except OttlaError:
        return None


async def _latest(registry: "AsyncRegistryClient", subject: str) -> tuple[str, str, str]:
    """Text, type and references of the latest version, to begin with; empty for a new subject."""
    try:
        view = await schemas.read_subject(registry, subject)
    except UnknownSubjectError:
        return "", "AVRO", ""
    lines = [f"{each.name}={each.subject}:{each.version}" for each in view.shown.references]
    return view.text, view.shown.type, "\n".join(lines)


def _status_of(check: Check | None) -> int:
    return 200 if check is None or (check.problem is None and not check.conflicts) else 422


def _subject(request: Request) -> str:
    subject = request.query_params.get("subject", "")
    if not subject:
        raise InvalidFormError("the address has no subject")
    return subject


def _target(subject: str | None) -> str:
    return subject if subject is not None else "schema registry"


def _choice(request: Request, name: str, known: tuple[str, ...]) -> str | None:
    """The parameter of the address; None if it is missing."""
    value = request.query_params.get(name)
    if value is not None and value not in known:
        raise InvalidFormError(f"{name} must be one of {', '.join(each for each in known if each)}")
    return value


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidFormError(f"{name} must be a number")
    return int(text)


def _here(request: Request) -> str:
    """This address: a POST to it applies what its parameters say."""
    return f"{request.url.path}?{request.url.query}"


def _file(kind: str) -> str:
    return {"AVRO": "schema.avsc", "JSON": "schema.json", "PROTOBUF": "schema.proto"}[kind]


def _command(registry: "AsyncRegistryClient", *words: str) -> str:
    """The `ottla registry` command that does the same at this registry."""
    return shlex.join(("ottla", "registry", *words, "--url", ",".join(registry.config.urls)))


_FORM: Final = ["GET", "POST"]
routes = [
    Route(_ROOT, of_registry(show_list)),
    SubpageRoute(f"{_ROOT}/-/register", of_registry(register), methods=_FORM),
    SubpageRoute(f"{_ROOT}/-/delete", of_registry(delete), methods=_FORM),
    SubpageRoute(f"{_ROOT}/-/level", of_registry(level), methods=_FORM),
    SubpageRoute(f"{_ROOT}/-/mode", of_registry(mode), methods=_FORM),
    Route(f"{_ROOT}/{{subject:name}}", of_registry(show_subject)),
]
