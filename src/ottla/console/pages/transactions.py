"""`/transactions`: open transactions by age, those that hang, and how they are aborted."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.services import transactions
from ottla.console.web.failures import outcome_of
from ottla.console.web.pages import (
    InvalidFormError,
    console_of,
    form_of,
    number_of,
    render,
    see,
    text_of,
    unconfirmed,
)
from ottla.console.web.windows import window
from ottla.model.ids import TopicPartition
from ottla.operations.durations import BadDurationError, parse_duration
from ottla.operations.groups.progress import partitions_text


async def show_list(request: Request) -> Response:
    """The open transactions; those that hang are searched for by a request of their own."""
    access = console_of(request)
    found = await transactions.find_open(access)
    rows = window(
        request,
        found.rows,
        text=lambda row: f"{row.found.transactional_id} {row.found.state} {partitions_text(row.found.partitions)}",
        sorts={
            "id": lambda row: row.found.transactional_id,
            "state": lambda row: row.found.state,
            "age": lambda row: row.age_ms,
            "producer": lambda row: row.found.producer_id,
        },
        default="-age",
    )
    timeout = request.query_params.get("timeout", "15m")
    hanging = None
    if request.query_params.get("search"):
        hanging = await transactions.search_hanging(access, _timeout_ms(timeout))
    return render(
        request,
        "transactions/list.html",
        found=found,
        window=rows,
        timeout=timeout,
        hanging=hanging,
        partitions_text=partitions_text,
    )


async def show_hanging(request: Request) -> Response:
    """The hanging transactions alone."""
    access = console_of(request)
    timeout = request.query_params.get("timeout", "15m")
    hanging = await transactions.search_hanging(access, _timeout_ms(timeout))
    return render(request, "transactions/hanging.html", hanging=hanging, timeout=timeout)


def _timeout_ms(text: str) -> int:
    try:
        return parse_duration(text, bare_unit="m")
    except BadDurationError as error:
        raise InvalidFormError(str(error)) from None


async def show_abort(request: Request) -> Response:
    """What a marker in one partition would do."""
    topic, partition, start_offset = _place(request)
    return await _abort_page(request, TopicPartition(topic, partition), start_offset)


async def _abort_page(
    request: Request, partition: TopicPartition, start_offset: int, error: InvalidFormError | None = None
) -> Response:
    preview = await transactions.preview_abort(console_of(request), partition, start_offset)
    return render(request, "transactions/abort.html", **outcome_of(error), preview=preview)


def _place(request: Request) -> tuple[str, int, int]:
    query = request.query_params
    numbers = [query.get(name, "") for name in ("partition", "start_offset")]
    if not query.get("topic") or not all(each.isascii() and each.isdigit() and len(each) < 19 for each in numbers):
        raise InvalidFormError("the address must have topic, partition and start_offset")
    return query["topic"], int(numbers[0]), int(numbers[1])


async def abort(request: Request) -> Response:
    """Aborts a transaction in one partition."""
    access = console_of(request)
    form = await form_of(request)
    partition = TopicPartition(text_of(form, "topic"), number_of(form, "partition"))
    start_offset = number_of(form, "start_offset")
    problem = unconfirmed(form, str(partition))
    if problem is not None:
        return await _abort_page(request, partition, start_offset, problem)
    await transactions.abort(access, partition, start_offset, number_of(form, "producer_id"))
    return see(request, "/transactions")


async def show_terminate(request: Request) -> Response:
    """What fencing a producer would do."""
    return await _terminate_page(request, request.query_params.get("id", ""))


async def _terminate_page(request: Request, transactional_id: str, error: InvalidFormError | None = None) -> Response:
    found = await transactions.find_transaction(console_of(request), transactional_id)
    return render(
        request, "transactions/terminate.html", **outcome_of(error), row=found, partitions_text=partitions_text
    )


async def terminate(request: Request) -> Response:
    """Fences the producer of a transactional id."""
    access = console_of(request)
    form = await form_of(request)
    transactional_id = text_of(form, "id")
    problem = unconfirmed(form, transactional_id)
    if problem is not None:
        return await _terminate_page(request, transactional_id, problem)
    await transactions.terminate(access, transactional_id)
    return see(request, "/transactions")


routes = [
    Route("/transactions", show_list),
    Route("/transactions/hanging", show_hanging),
    Route("/transactions/abort", show_abort, methods=["GET"]),
    Route("/transactions/abort", abort, methods=["POST"]),
    Route("/transactions/terminate", show_terminate, methods=["GET"]),
    Route("/transactions/terminate", terminate, methods=["POST"]),
]
