"""`/queues` and `/topics/{topic}/queues`: what is parked, when it is due, and instructions about parked records."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.services import queues
from ottla.console.services.edited_bytes import header_text, one_line, shown_bytes
from ottla.console.services.records.search import in_utc
from ottla.console.web.failures import outcome_of
from ottla.console.web.pages import (
    InvalidFormError,
    console_of,
    form_of,
    path_of,
    render,
    see,
    text_of,
    unconfirmed,
)
from ottla.model.queue_names import CompanionKind
from ottla.operations.positions import BadTimeError, parse_future


async def show_list(request: Request) -> Response:
    """All topics with queues."""
    found = await queues.find_queues(console_of(request))
    return render(request, "queues/list.html", found=found)


async def show_topic(request: Request) -> Response:
    """The queues of one topic."""
    topic = request.path_params["topic"]
    page = await queues.find_topic(console_of(request), topic)
    return render(request, "queues/topic.html", page=page, topic=topic, one_line=one_line)


async def show_record(request: Request) -> Response:
    """One parked record, and what can be done with it."""
    return await _record_page(request)


async def _record_page(request: Request, due: str = "", error: InvalidFormError | None = None) -> Response:
    access = console_of(request)
    params = request.path_params
    row = await queues.find_parked(access, params["queue"], params["partition"], params["offset"])
    can_be_due = row.kind is CompanionKind.DELAYED
    if error is not None and (row.kind is CompanionKind.HALF or (error.field == "due" and not can_be_due)):
        # The page has no such form for this record.
        raise error
    record = row.parked.record
    return render(
        request,
        "queues/record.html",
        **outcome_of(error),
        due=due,
        topic=params["topic"],
        queue=params["queue"],
        row=row,
        record=record,
        key=shown_bytes(record.key),
        value=shown_bytes(record.value),
        headers=[(name, header_text(value)) for name, value in record.headers],
        now_ms=access.cluster.clock.now_ms(),
    )


async def instruct(request: Request) -> Response:
    """Releases, cancels or reschedules one parked record."""
    access = console_of(request)
    params = request.path_params
    place = (params["queue"], params["partition"], params["offset"])
    form = await form_of(request)
    match text_of(form, "action"):
        case "release":
            await queues.release(access, *place)
        case "cancel":
            problem = unconfirmed(form, f"{place[1]}:{place[2]}")
            if problem is not None:
                return await _record_page(request, error=problem)
            await queues.cancel(access, *place)
        case "reschedule":
            due = text_of(form, "due", "")
            try:
                due_ms = parse_future(in_utc(due.strip()), access.cluster.clock.now_ms())
            except BadTimeError as error:
                return await _record_page(request, due, InvalidFormError(str(error), "due"))
            await queues.reschedule(access, *place, due_ms)
        case other:
            raise InvalidFormError(f"{other!r} is not one of release, cancel and reschedule")
    return see(request, path_of("topics", params["topic"], "queues"))


async def release_all(request: Request) -> Response:
    """Starts the job that makes the records of a queue due now that were shown."""
    access = console_of(request)
    queue, topic = request.path_params["queue"], request.path_params["topic"]
    form = await form_of(request)
    problem = unconfirmed(form, queue)
    if problem is not None:
        return await _release_all_page(request, problem)
    job = queues.start_release_all(access, queue, topic, text_of(form, "plan"), text_of(form, "queue_id"))
    return see(request, job.address)


async def show_release_all(request: Request) -> Response:
    """Asks before all records of a queue are released."""
    return await _release_all_page(request)


async def _release_all_page(request: Request, error: InvalidFormError | None = None) -> Response:
    access = console_of(request)
    view = await queues.find_queue(access, request.path_params["queue"])
    return render(
        request, "queues/release_all.html", **outcome_of(error), view=view, topic=request.path_params["topic"]
    )


async def count(request: Request) -> Response:
    """Starts the job that counts a long queue."""
    access = console_of(request)
    job = queues.start_count(access, request.path_params["queue"], request.path_params["topic"])
    return see(request, job.address)


routes = [
    Route("/queues", show_list),
    Route("/topics/{topic}/queues", show_topic),
    Route("/topics/{topic}/queues/{queue}/release-all", show_release_all, methods=["GET"]),
    Route("/topics/{topic}/queues/{queue}/release-all", release_all, methods=["POST"]),
    Route("/topics/{topic}/queues/{queue}/count", count, methods=["POST"]),
    Route("/topics/{topic}/queues/{queue}/{partition:int}/{offset:int}", show_record, methods=["GET"]),
    Route("/topics/{topic}/queues/{queue}/{partition:int}/{offset:int}", instruct, methods=["POST"]),
]
