"""`/dead-letters` and `/dead-letters/{topic}`: what is dead and why; inspect, edit a copy, redrive, purge."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.cluster.access import Access
from ottla.console.services import dead_letters
from ottla.console.services.dead_letters import Copy
from ottla.console.services.edited_bytes import (
    FORMS,
    bytes_of_form,
    form_of_bytes,
    header_lines,
    header_text,
    headers_of_lines,
    one_line,
    shown_bytes,
)
from ottla.console.services.records.search import in_utc
from ottla.console.web.failures import outcome_of
from ottla.console.web.pages import (
    InvalidFormError,
    command_of,
    console_of,
    form_of,
    number_of,
    path_of,
    render,
    see,
    text_of,
    unconfirmed,
)
from ottla.model.errors import OttlaError
from ottla.operations.dead_letters.letters import Letter, LetterFilter
from ottla.operations.dead_letters.redrive import RedriveRules
from ottla.operations.positions import BadTimeError, parse_past

_FILTERS = (("reason", "--reason"), ("origin", "--origin"), ("group", "--group"), ("key", "--key"))
_TIMES = (("since", "--since"), ("until", "--until"))


async def show_topics(request: Request) -> Response:
    """The dead-letter topics."""
    found = await dead_letters.find_topics(console_of(request))
    return render(request, "dead_letters/topics.html", found=found)


async def show_topic(request: Request) -> Response:
    """The letters of one topic by reason, origin and time, and the newest."""
    access = console_of(request)
    topic = request.path_params["topic"]
    fields = dict(request.query_params)
    scan = _number(fields.get("scan", ""), dead_letters.SCANNED_MAX, dead_letters.SCANNED_LIMIT)
    summary = await dead_letters.summarize(access, topic, _filter(access, fields), scan)
    return render(
        request,
        "dead_letters/topic.html",
        topic=topic,
        summary=summary,
        fields=fields,
        scan=scan,
        scan_limit=dead_letters.SCANNED_LIMIT,
        one_line=one_line,
        kept=_kept(fields),
        largest=max((each.letters for each in summary.buckets), default=0),
        command_text=command_of(access, "queues", "dead-letters", "list", topic, *_filter_words(fields)),
    )


def _kept(fields: Mapping[str, str]) -> str:
    """The filters as they stand in an address, after `?`."""
    names = [name for name, _ in (*_FILTERS, *_TIMES)]
    return urlencode([(name, fields[name]) for name in names if fields.get(name)])


def _number(text: str, default: int, most: int) -> int:
    return min(max(int(text), 1), most) if text.isascii() and text.isdigit() and len(text) < 16 else default


def _filter(access: Access, fields: Mapping[str, str]) -> LetterFilter:
    """The letters that an address or a form names; `now_ms` in it is the time that durations count back from. Raises
    `InvalidFormError`."""
    now_ms = _number(fields.get("now_ms", ""), access.cluster.clock.now_ms(), 2**53)
    try:
        since_ms, until_ms = (parse_past(fields[name], now_ms) if fields.get(name) else None for name, _ in _TIMES)
    except BadTimeError as error:
        raise InvalidFormError(str(error)) from None
    return LetterFilter(
        since_ms=since_ms,
        until_ms=until_ms,
        reason=fields.get("reason") or None,
        key=fields.get("key") or None,
        topic=fields.get("origin") or None,
        group=fields.get("group") or None,
    )


def _filter_words(fields: Mapping[str, str]) -> list[str]:
    pairs = [(option, fields.get(name, "")) for name, option in _FILTERS]
    pairs += [(option, in_utc(fields.get(name, "").strip())) for name, option in _TIMES]
    return [word for option, value in pairs if value for word in (option, value)]


# One letter


def _letter_place(request: Request) -> tuple[str, int, int]:
    return request.path_params["topic"], request.path_params["partition"], request.path_params["offset"]


async def show_letter(request: Request) -> Response:
    """One letter: where it came from, why it died, its headers, key and value."""
    access = console_of(request)
    topic, partition, offset = _letter_place(request)
    row = await dead_letters.find_letter(access, topic, partition, offset)
    record = row.letter.record
    return render(
        request,
        "dead_letters/letter.html",
        topic=topic,
        row=row,
        letter=row.letter,
        record=record,
        key=shown_bytes(record.key),
        value=shown_bytes(record.value),
        headers=[(name, header_text(value)) for name, value in record.headers],
    )


async def show_edit(request: Request) -> Response:
    """The form of a copy."""
    access = console_of(request)
    topic, partition, offset = _letter_place(request)
    row = await dead_letters.find_letter(access, topic, partition, offset)
    copy = dead_letters.copy_of(row.letter)
    (key_form, key), (value_form, value) = form_of_bytes(copy.key), form_of_bytes(copy.value)
    filled = {
        "topic": copy.topic,
        "partition": "" if copy.partition is None else str(copy.partition),
        "key_form": key_form,
        "key": key,
        "value_form": value_form,
        "value": value,
        "headers": header_lines(copy.headers),
    }
    return _edit_form(request, row.letter, filled)


def _edit_form(
    request: Request, letter: Letter, filled: Mapping[str, Any], error: OttlaError | None = None
) -> Response:
    return render(
        request,
        "dead_letters/edit.html",
        **outcome_of(error),
        topic=request.path_params["topic"],
        letter=letter,
        filled=filled,
        forms=FORMS,
    )


async def send_copy(request: Request) -> Response:
    """Sends the edited copy. A form that cannot be used is shown again as it was filled."""
    form = await form_of(request)
    topic, partition, offset = _letter_place(request)
    try:
        written_to, (sent_partition, sent_offset) = await _sent_copy(request, form)
    except OttlaError as error:
        row = await dead_letters.find_letter(console_of(request), topic, partition, offset)
        return _edit_form(request, row.letter, form, error)
    return see(request, f"{path_of('topics', written_to, 'records')}?partition={sent_partition}&from={sent_offset}")


async def _sent_copy(request: Request, form: FormData) -> tuple[str, tuple[int, int]]:
    """The topic that the copy was sent to, its partition and offset."""
    topic, partition, offset = _letter_place(request)
    wanted = number_of(form, "partition", -1, least=-1, most=2**31 - 1)
    copy = Copy(
        topic=text_of(form, "topic"),
        partition=None if wanted < 0 else wanted,
        key=bytes_of_form(text_of(form, "key_form", "text"), text_of(form, "key", ""), "key"),
        value=bytes_of_form(text_of(form, "value_form", "text"), text_of(form, "value", ""), "value"),
        headers=headers_of_lines(text_of(form, "headers", "")),
    )
    return copy.topic, await dead_letters.send_copy(console_of(request), f"{topic} {partition}:{offset}", copy)


# Redrive


async def show_redrive(request: Request) -> Response:
    """The form of a redrive, with a dry run of it."""
    access = console_of(request)
    topic = request.path_params["topic"]
    fields = {name: value for name, value in request.query_params.items() if name != "now_ms"}
    plan, command, problem = None, "", ""
    now_ms = access.cluster.clock.now_ms()
    try:
        rules = _rules(access, topic, {**fields, "now_ms": str(now_ms)})
        command = command_of(access, "queues", "dead-letters", "redrive", topic, *_redrive_words(fields), "--yes")
        plan = await dead_letters.plan_redrive(access, rules)
    except InvalidFormError as error:
        problem = str(error)
    except OttlaError as error:
        if not fields:
            raise
        problem = str(error)
    return render(
        request,
        "dead_letters/redrive.html",
        status=422 if problem else 200,
        topic=topic,
        fields=fields,
        plan=plan,
        now_ms=now_ms,
        problem=problem,
        command_text=command,
    )


def _rules(access: Access, topic: str, fields: Mapping[str, str]) -> RedriveRules:
    """The rules that an address or a form names. Raises `InvalidFormError`."""
    to = fields.get("to", "").strip() or None
    to_group = fields.get("target") == "group"
    if fields.get("target") == "topic" and to is None:
        raise InvalidFormError("send to: name the topic, or choose the topic of each letter")
    rules = RedriveRules(
        topic=topic,
        chosen=_filter(access, fields),
        to=None if to_group else to,
        to_group=to_group,
        is_forced=fields.get("force") == "yes",
    )
    try:
        if fields.get("rate"):
            rules = replace(rules, rate=float(fields["rate"]))
        if fields.get("max_redrives"):
            rules = replace(rules, redrives_max=int(fields["max_redrives"]))
    except ValueError:
        raise InvalidFormError("rate and most redrives must be numbers") from None
    if (rules.rate is not None and not 0.001 <= rules.rate <= 1_000_000) or not 1 <= rules.redrives_max <= 10**9:
        raise InvalidFormError("rate must be from 0.001 to 1,000,000 letters in a second, most redrives at least 1")
    return rules


def _redrive_words(fields: Mapping[str, str]) -> list[str]:
    words = _filter_words(fields)
    if fields.get("target") == "group":
        words.append("--to-group")
    elif fields.get("to", "").strip():
        words += ["--to", fields["to"].strip()]
    for name, option in (("rate", "--rate"), ("max_redrives", "--max-redrives")):
        words += [option, fields[name]] if fields.get(name) else []
    return [*words, "--force"] if fields.get("force") == "yes" else words


def _fields(form: FormData) -> dict[str, str]:
    return {name: value for name, value in form.multi_items() if isinstance(value, str)}


async def redrive(request: Request) -> Response:
    """Starts the job, with exactly the letters of the dry run that was shown."""
    access = console_of(request)
    topic = request.path_params["topic"]
    form = await form_of(request)
    fields = _fields(form)
    total = number_of(form, "letters", -1, least=-1)
    rules = dead_letters.pinned_rules(_rules(access, topic, fields), text_of(form, "plan"))
    job = dead_letters.start_redrive(access, rules, None if total < 0 else total, text_of(form, "topic_id"))
    return see(request, job.address)


# Purge


async def show_purge(request: Request) -> Response:
    """Asks what is deleted, and shows it."""
    return await _purge_page(request, dict(request.query_params))


async def _purge_page(request: Request, fields: dict[str, str], error: InvalidFormError | None = None) -> Response:
    access = console_of(request)
    topic = request.path_params["topic"]
    what, problem, plan = fields.get("what", "redriven"), "", None
    words = {
        "redriven": ["--redriven"],
        "until": ["--until", in_utc(fields.get("until", "").strip())],
        "all": ["--all"],
    }
    try:
        if what not in words:
            raise InvalidFormError(f"{what!r} is not one of redriven, until and all")
        until_ms = None
        if what == "until":
            until_ms = _filter(access, {"until": text_of(FormData(fields), "until")}).until_ms
        plan = await dead_letters.plan_purge(access, topic, redriven=what == "redriven", until_ms=until_ms)
    except InvalidFormError as refused:
        problem = str(refused)
    command = command_of(access, "queues", "dead-letters", "purge", topic, *words.get(what, []), "--yes")
    return render(
        request,
        "dead_letters/purge.html",
        **(outcome_of(error) | ({"status": 422} if problem else {})),
        topic=topic,
        fields=fields,
        what=what,
        plan=plan,
        problem=problem,
        command_text=command,
    )


async def purge(request: Request) -> Response:
    """Deletes the letters that were shown."""
    access = console_of(request)
    topic = request.path_params["topic"]
    form = await form_of(request)
    problem = unconfirmed(form, topic)
    if problem is not None:
        return await _purge_page(request, {name: text_of(form, name, "") for name in ("what", "until")}, problem)
    await dead_letters.purge(access, topic, text_of(form, "plan"))
    return see(request, path_of("dead-letters", topic))


routes = [
    Route("/dead-letters", show_topics),
    Route("/dead-letters/{topic}", show_topic),
    Route("/dead-letters/{topic}/redrive", show_redrive, methods=["GET"]),
    Route("/dead-letters/{topic}/redrive", redrive, methods=["POST"]),
    Route("/dead-letters/{topic}/purge", show_purge, methods=["GET"]),
    Route("/dead-letters/{topic}/purge", purge, methods=["POST"]),
    Route("/dead-letters/{topic}/{partition:int}/{offset:int}", show_letter),
    Route("/dead-letters/{topic}/{partition:int}/{offset:int}/edit", show_edit, methods=["GET"]),
    Route("/dead-letters/{topic}/{partition:int}/{offset:int}/edit", send_copy, methods=["POST"]),
]
