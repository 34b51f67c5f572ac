"""`/topics/{topic}/records`: the viewer, whose whole state is its address; search and live tail as event streams; one
record; downloads; producing."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.values import RecordMetadata
from ottla.console.cluster.access import Access
from ottla.console.errors import InvalidFormError, NotFoundError
from ottla.console.filters import FilterError
from ottla.console.filters.syntax import Root
from ottla.console.services.records.exports import MEDIA_TYPES, ExportFormat, export, start_export
from ottla.console.services.records.live import follow
from ottla.console.services.records.one_record import read_record
from ottla.console.services.records.producing import Encoding, TypedPart, made_record, produce, typed_headers
from ottla.console.services.records.query import Decode, Order, RecordsQuery
from ottla.console.services.records.rows import RecordRow
from ottla.console.services.records.scan import scan_plan
from ottla.console.services.records.search import Found, Progress, Search, all_rows, bounds_for
from ottla.console.services.topics import topic_view
from ottla.console.web.events import attachment, event, event_stream, file_stream
from ottla.console.web.failures import outcome_of
from ottla.console.web.human import plural, short_bytes, short_number
from ottla.console.web.pages import (
    command_of,
    console_of,
    form_of,
    is_fragment,
    number_of,
    path_of,
    render,
    see,
    templates,
    text_of,
)
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.model.ids import TopicPartition

_PLAIN_SECONDS: Final = 10.0
"""How long a search takes at most without JavaScript."""
_DECODES: Final = (
    (Decode.AUTO.value, "auto"),
    (Decode.STRING.value, "text"),
    (Decode.JSON.value, "JSON"),
    (Decode.HEX.value, "hex"),
    (Decode.BASE64.value, "base64"),
    (Decode.INTEGER.value, "integer"),
)


async def show(request: Request) -> Response:
    """The viewer. What is wrong with a query is said beside its form."""
    access, topic = console_of(request), _topic(request)
    view = await topic_view(access.cluster, topic)
    context: dict[str, Any] = {"topic": topic, "view": view, "path": path_of("topics", topic, "records")}
    context |= {"decodes": _DECODES, "rows": [], "progress": None, "stream": "", "pointer": "", "command_text": ""}
    try:
        query = RecordsQuery.of(request.query_params)
        context |= {"query": query, "filter_text": query.filter, "problem": ""}
        context |= await _shown(access, topic, query, is_plain=request.query_params.get("plain") == "1")
    except FilterError as error:
        context |= {"problem": f"The filter cannot be read: {error}", "pointer": error.pointer}
    except InvalidRequestError as error:
        context = {"query": RecordsQuery(), "filter_text": "", **context, "problem": str(error)}
    return render(request, "records/viewer.html", status=422 if context["problem"] else 200, **context)


async def _shown(access: Access, topic: str, query: RecordsQuery, *, is_plain: bool) -> dict[str, Any]:
    """Rows, or the address of the stream that brings them. Raises `InvalidRequestError`."""
    path = path_of("topics", topic, "records")
    plan = scan_plan(query, access.schema_reader())
    found: dict[str, Any] = {"command_text": _command(access, topic, query)}
    bounds = await bounds_for(access.cluster, topic, query)
    if query.live:
        return {**found, "stream": query.address(f"{path}/live")}
    if query.is_search and not is_plain:
        return {**found, "stream": query.address(f"{path}/search")}
    search = Search(access.cluster, access.scans, bounds, plan, query, seconds_max=_PLAIN_SECONDS)
    rows, progress = await all_rows(search.events())
    return {**found, "rows": rows, "progress": progress}


async def search(request: Request) -> Response:
    """The rows of a search as they are found, as events: `rows`, `progress`, and `end` at the end."""
    access, topic = console_of(request), _topic(request)
    query = RecordsQuery.of(request.query_params)
    plan = scan_plan(query, access.schema_reader())
    path = path_of("topics", topic, "records")

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            bounds = await bounds_for(access.cluster, topic, query)
            async with aclosing(Search(access.cluster, access.scans, bounds, plan, query).events()) as found:
                async for each in found:
                    if isinstance(each, Found):
                        yield event("rows", {"html": _rows_html(each.rows, path, query)})
                    else:
                        yield event("progress", _progress(each))
        except OttlaError as error:
            yield event("failed", {"words": str(error)})
        yield event("end", {})

    return event_stream(access, events())


async def live(request: Request) -> Response:
    """New records as events: `rows` with the rate."""
    access, topic = console_of(request), _topic(request)
    query = RecordsQuery.of(request.query_params)
    plan = scan_plan(query, access.schema_reader())
    path = path_of("topics", topic, "records")

    async def events() -> AsyncGenerator[bytes, None]:
        try:
            bounds = await bounds_for(access.cluster, topic, query)
            yield event("ready", {})
            async with aclosing(follow(access.cluster, access.scans, bounds, plan, query)) as turns:
                async for turn in turns:
                    yield event(
                        "rows",
                        {
                            "html": _rows_html(turn.rows, path, query),
                            "rows": len(turn.rows),
                            "rate": f"{short_number(turn.per_second)} records/s",
                            "left_out": turn.left_out,
                        },
                    )
        except OttlaError as error:
            yield event("failed", {"words": str(error)})
            yield event("end", {})

    return event_stream(access, events())


async def show_record(request: Request) -> Response:
    """One record: a page of its own, or what opens below its row."""
    access, topic = console_of(request), _topic(request)
    query = RecordsQuery.of({**request.query_params, "from": ""})
    partition, offset = request.path_params["partition"], request.path_params["offset"]
    record, kind = await read_record(
        access.cluster,
        TopicPartition(topic, partition),
        offset,
        reader=access.schema_reader(),
        uncommitted=query.uncommitted,
    )
    found = await asyncio.to_thread(record.open, query.decode, kind)
    path = path_of("topics", topic, "records", partition, offset)
    return render(
        request,
        "records/record.html",
        topic=topic,
        record=found,
        path=path,
        link=query.address(path),
        query=query,
        decodes=_DECODES,
        is_part=is_fragment(request),
        command_text=command_of(
            access, "consume", topic, "--partition", partition, "--from", offset, "--max", 1, "--format", "json"
        ),
    )


async def download_part(request: Request) -> Response:
    """The bytes of a key or value, as a file."""
    access, topic = console_of(request), _topic(request)
    partition, offset = request.path_params["partition"], request.path_params["offset"]
    part = request.path_params["part"]
    if part not in (Root.KEY.value, Root.VALUE.value):
        raise NotFoundError(f"a record has a key and a value, but no {part[:50]}")
    record, _ = await read_record(access.cluster, TopicPartition(topic, partition), offset, uncommitted=True)
    data = record.data(Root(part))
    if data is None:
        raise NotFoundError(f"the {part} of {topic}-{partition} at offset {offset} is null")
    return Response(
        data, media_type="application/octet-stream", headers=attachment(f"{topic}-{partition}-{offset}-{part}.bin")
    )


async def download(request: Request) -> Response:
    """All records of the query as a file, streamed."""
    access, topic = console_of(request), _topic(request)
    query = RecordsQuery.of(request.query_params)
    kind = _format(request.query_params.get("format", ""))
    plan = scan_plan(query, access.schema_reader())
    bounds = await bounds_for(access.cluster, topic, query)
    return file_stream(
        access,
        export(access.cluster, access.scans, bounds, plan, query, kind),
        MEDIA_TYPES[kind],
        attachment(f"{topic}.{kind.value}"),
    )


async def start_file(request: Request) -> Response:
    """Starts a job that writes the file; then the job is shown. The query is in the address, as for a download."""
    access, topic = console_of(request), _topic(request)
    form = await form_of(request)
    query = RecordsQuery.of(request.query_params)
    job = await start_export(access, topic, query, _format(text_of(form, "format")))
    return see(request, job.address)


def _format(text: str) -> ExportFormat:
    try:
        return ExportFormat(text)
    except ValueError:
        raise InvalidFormError(f"format must be one of {', '.join(ExportFormat)}") from None


async def show_produce(request: Request) -> Response:
    """The form for a new record."""
    return await _produce_form(request, {})


async def _produce_form(request: Request, filled: Mapping[str, Any], error: OttlaError | None = None) -> Response:
    access, topic = console_of(request), _topic(request)
    view = await topic_view(access.cluster, topic)
    has_registry = access.settings.registry_url is not None
    return render(
        request,
        "records/produce.html",
        **outcome_of(error),
        topic=topic,
        filled=filled,
        partitions=len(view.partitions),
        encodings=[each.value for each in Encoding if has_registry or each is not Encoding.SCHEMA],
        has_registry=has_registry,
        command_text=command_of(access, "produce", topic),
    )


async def produce_record(request: Request) -> Response:
    """Writes a record; then it is shown. A form that cannot be used is shown again as it was filled."""
    form = await form_of(request)
    try:
        written = await _produced(request, form)
    except OttlaError as error:
        return await _produce_form(request, form, error)
    return see(request, path_of("topics", _topic(request), "records", written.partition, written.offset))


async def _produced(request: Request, form: FormData) -> RecordMetadata:
    access, topic = console_of(request), _topic(request)
    view = await topic_view(access.cluster, topic)
    partition = number_of(form, "partition", -1, least=-1, most=len(view.partitions) - 1)
    key, value = (
        TypedPart(
            text=text_of(form, name, ""),
            encoding=_encoding(form, f"{name}_encoding"),
            schema=text_of(form, f"{name}_schema", ""),
            message=text_of(form, f"{name}_message", ""),
        )
        for name in ("key", "value")
    )
    headers = typed_headers(text_of(form, "headers", ""))
    record = await made_record(
        access, topic, key=key, value=value, headers=headers, partition=None if partition < 0 else partition
    )
    return await produce(access, topic, record)


def _encoding(form: FormData, name: str) -> Encoding:
    text = text_of(form, name, Encoding.TEXT.value)
    try:
        return Encoding(text)
    except ValueError:
        raise InvalidFormError(f"{text[:50]} is not one of {', '.join(Encoding)}", name) from None


def _topic(request: Request) -> str:
    return str(request.path_params["topic"])


def _rows_html(rows: list[RecordRow], path: str, query: RecordsQuery) -> str:
    return templates().get_template("records/rows.html").render(rows=rows, path=path, query=query)


def _progress(progress: Progress) -> dict[str, Any]:
    return {
        "words": progress_words(progress),
        "done": progress.offsets_done,
        "total": progress.offsets_total,
        "outcome": progress.outcome,
        "error": progress.error,
    }


def progress_words(progress: Progress) -> str:
    """What a search has done so far, in one line."""
    share = f" of {plural(progress.offsets_total, 'offset')}" if progress.offsets_total else ""
    return (
        f"scanned {progress.scanned:,}{share}, {progress.matched:,} matched, "
        f"{short_number(progress.per_second)} records/s, {short_bytes(progress.size_bytes)}"
    )


def _command(access: Access, topic: str, query: RecordsQuery) -> str:
    """The command that shows about the same."""
    words: list[object] = ["consume", topic]
    if query.from_ or query.live:
        words += ["--from", "end" if query.live else query.from_]
    elif query.order is Order.NEWEST:
        words += ["--last", query.limit]
    for partition in query.partitions or ():
        words += ["--partition", partition]
    if query.live:
        words += ["--follow"]
    elif query.from_:
        words += ["--max", query.limit]
    words += ["--isolation-level", "read_uncommitted" if query.uncommitted else "read_committed"]
    return command_of(access, *words)


_RECORDS: Final = "/topics/{topic}/records"
routes = [
    Route(_RECORDS, show),
    Route(f"{_RECORDS}/search", search),
    Route(f"{_RECORDS}/live", live),
    Route(f"{_RECORDS}/export", download, methods=["GET"]),
    Route(f"{_RECORDS}/export", start_file, methods=["POST"]),
    Route(f"{_RECORDS}/{{partition:int}}/{{offset:int}}", show_record),
    Route(f"{_RECORDS}/{{partition:int}}/{{offset:int}}/{{part}}", download_part),
    Route("/topics/{topic}/produce", show_produce, methods=["GET"]),
    Route("/topics/{topic}/produce", produce_record, methods=["POST"]),
]
