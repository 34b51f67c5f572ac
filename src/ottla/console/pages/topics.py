"""`/topics` and the pages of one topic, except its records (`records.py`) and queues (`queues.py`).

Forms that are not about one topic are at `/topics/~…`: no topic can have such a name.
"""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.admin.config_requests import ConfigEntry
from ottla.client.network.cluster_view import TopicView
from ottla.console.cluster.access import Access
from ottla.console.errors import InvalidFormError
from ottla.console.services import topic_changes
from ottla.console.services.reassignment import MovePlan, has_left_throttle, plan_topic, start_plan
from ottla.console.services.records.search import in_utc
from ottla.console.services.topic_changes import BROKER_DEFAULT, TopicForm, parse_configs
from ottla.console.services.topics import (
    TopicRow,
    find_topics,
    is_set,
    partition_bounds,
    reading_groups,
    record_counts,
    topic_configs,
    topic_page,
    topic_view,
    total_lag,
    with_cleanup,
    with_records,
)
from ottla.console.web.failures import outcome_of
from ottla.console.web.pages import (
    command_of,
    console_of,
    form_of,
    is_fragment,
    number_of,
    path_of,
    render,
    see,
    text_of,
    unconfirmed,
)
from ottla.console.web.windows import Window, window
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.operations.sizes import BadSizeError, parse_size

_SORTS: Final[dict[str, Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replication_factor,
    "records": lambda row: row.records,
    "size": lambda row: row.size_bytes,
    "in": lambda row: row.in_per_second,
    "out": lambda row: row.out_per_second,
    "lag": lambda row: row.lag,
}
_RATE: Final = "20m"
_CREATE_FIELDS: Final = ("name", "partitions", "replication_factor", "configs")


# The list


async def show_list(request: Request) -> Response:
    """All topics, a window at a time."""
    access = console_of(request)
    every = await find_topics(access, is_fresh=not is_fragment(request))
    shows_internal = request.query_params.get("internal") == "1"
    rows = [each for each in every if shows_internal or not each.is_internal]
    sorts = _SORTS
    if request.query_params.get("sort", "").lstrip("-") == "records":
        counts = await record_counts(access)
        sorts = {**_SORTS, "records": lambda row: counts.get(row.name)}
    found: Window[TopicRow] = window(request, rows, text=lambda row: row.name, sorts=sorts, default="name", size=100)
    shown = await with_cleanup(access, await with_records(access, found.rows))
    return render(
        request,
        "topics/list.html",
        window=found,
        rows=shown,
        internal=len(every) - len(rows) if not shows_internal else 0,
        shows_internal=shows_internal,
        partitions=sum(each.partitions for each in every),
        offline=sum(each.offline for each in every),
        under_replicated=sum(each.under_replicated for each in every),
    )


# One topic


async def show_overview(request: Request) -> Response:
    """The state of one topic, and its rates."""
    access = console_of(request)
    page = await topic_page(access, _topic(request))
    groups = await reading_groups(access, page.name)
    lag = None if groups is None else total_lag(each.lag for each in groups)
    return render(request, "topics/overview.html", page=page, lag=lag)


async def show_partitions(request: Request) -> Response:
    """Leaders, replicas, offsets and disks."""
    access = console_of(request)
    page = await topic_page(access, _topic(request))
    return render(request, "topics/partitions.html", page=page)


async def show_groups(request: Request) -> Response:
    """The groups that read the topic."""
    access, topic = console_of(request), _topic(request)
    await topic_view(access.cluster, topic)
    return render(request, "topics/groups.html", topic=topic, groups=await reading_groups(access, topic))


async def show_schema(request: Request) -> Response:
    """The subjects of the registry that belong to the topic."""
    access, topic = console_of(request), _topic(request)
    await topic_view(access.cluster, topic)
    registry = access.registry()
    subjects: list[str] = []
    problem = ""
    if registry is not None:
        try:
            subjects = [
                each
                for each in await registry.subjects(topic)
                if each in (f"{topic}-key", f"{topic}-value") or each.startswith(f"{topic}-")
            ]
        except OttlaError as error:
            problem = str(error)
    return render(
        request,
        "topics/schema.html",
        topic=topic,
        subjects=subjects,
        problem=problem,
        has_registry=registry is not None,
    )


# Configs


async def show_config(request: Request) -> Response:
    """All configs, with what they mean and their defaults."""
    access, topic = console_of(request), _topic(request)
    entries = await topic_configs(access, topic)
    edited = request.query_params.get("edit", "")
    chosen = next((each for each in entries if each.name == edited), None)
    if chosen is not None:
        return _config_form(request, chosen, chosen.value or "")
    return render(
        request, "topics/config.html", topic=topic, entries=entries, is_set=is_set, set_count=sum(map(is_set, entries))
    )


def _config_form(request: Request, entry: ConfigEntry, value: str, error: OttlaError | None = None) -> Response:
    topic = _topic(request)
    return render(
        request,
        "topics/config_edit.html",
        **outcome_of(error, "value"),
        topic=topic,
        entry=entry,
        value=value,
        is_set=is_set(entry),
        set_command=command_of(console_of(request), "configs", "set", f"{entry.name}=VALUE", "--topic", topic),
    )


async def change_config(request: Request) -> Response:
    """Sets one config, or removes the topic's own value. A value that is refused is shown again in its form."""
    access, topic = console_of(request), _topic(request)
    form = await form_of(request)
    name = text_of(form, "name")
    value = None if text_of(form, "action", "") == "reset" else text_of(form, "value", "")
    try:
        await topic_changes.set_config(access, topic, name, value)
    except OttlaError as error:
        entries = await topic_configs(access, topic)
        chosen = next((each for each in entries if each.name == name), None)
        if value is None or chosen is None:
            raise
        return _config_form(request, chosen, value, error)
    return see(request, path_of("topics", topic, "config"))


# Create, grow, delete


async def show_create(request: Request) -> Response:
    """The form for a new topic, with a preview if it is filled."""
    access = console_of(request)
    values = {name: request.query_params.get(name, "") for name in _CREATE_FIELDS}
    preview = command_text = ""
    problem: OttlaError | None = None
    if values["name"]:
        try:
            wanted = _topic_form(values)
            command_text = command_of(access, *wanted.words())
            preview = await topic_changes.check_topic(access, wanted)
        except OttlaError as error:
            problem = error
    return _create_page(request, values, problem, preview=preview, command_text=command_text)


def _create_page(
    request: Request, values: dict[str, str], error: OttlaError | None, *, preview: str = "", command_text: str = ""
) -> Response:
    return render(
        request,
        "topics/create.html",
        **outcome_of(error),
        values=values,
        preview=preview,
        command_text=command_text,
    )


async def create(request: Request) -> Response:
    """Creates the topic; then its page is shown."""
    form = await form_of(request)
    values = {name: text_of(form, name, "") for name in _CREATE_FIELDS}
    try:
        wanted = _topic_form(values)
        await topic_changes.create_topic(console_of(request), wanted)
    except OttlaError as error:
        return _create_page(request, values, error)
    return see(request, path_of("topics", wanted.name))


def _topic_form(values: dict[str, str]) -> TopicForm:
    if not values["name"].strip():
        raise InvalidFormError("name must not be empty", "name")
    return TopicForm(
        name=values["name"].strip(),
        partitions=_count(values["partitions"], "partitions"),
        replication_factor=_count(values["replication_factor"], "replication factor"),
        configs=parse_configs(values["configs"]),
    )


def _count(text: str, words: str) -> int:
    text = text.strip()
    if not text:
        return BROKER_DEFAULT
    if not (text.isascii() and text.isdigit() and len(text) < 7) or not int(text):
        raise InvalidFormError(f"{words}: {text[:50]!r} is not a whole number of at least 1", words.replace(" ", "_"))
    return int(text)


async def show_grow(request: Request) -> Response:
    """The form to add partitions."""
    count = len((await topic_view(console_of(request).cluster, _topic(request))).partitions)
    wanted = _count(request.query_params.get("count", ""), "partitions")
    return _grow_form(request, count, str(wanted if wanted > count else count + 1))


def _grow_form(request: Request, count: int, wanted: str, error: OttlaError | None = None) -> Response:
    access, topic = console_of(request), _topic(request)
    return render(
        request,
        "topics/grow.html",
        **outcome_of(error, "count"),
        topic=topic,
        count=count,
        wanted=wanted,
        command_text=command_of(access, "topics", "add-partitions", topic, wanted),
    )


async def grow(request: Request) -> Response:
    """Adds partitions; then they are shown."""
    access, topic = console_of(request), _topic(request)
    form = await form_of(request)
    try:
        await topic_changes.add_partitions(access, topic, number_of(form, "count", least=1, most=100_000))
    except OttlaError as error:
        count = len((await topic_view(access.cluster, topic)).partitions)
        return _grow_form(request, count, text_of(form, "count", ""), error)
    return see(request, path_of("topics", topic, "partitions"))


async def show_delete(request: Request) -> Response:
    """The form to delete the topic."""
    return await _delete_page(request)


async def _delete_page(request: Request, error: InvalidFormError | None = None) -> Response:
    access = console_of(request)
    page = await topic_page(access, _topic(request))
    groups = await reading_groups(access, page.name)
    return render(
        request,
        "topics/delete.html",
        **outcome_of(error),
        page=page,
        groups=groups,
        command_text=command_of(access, "topics", "delete", page.name),
    )


async def delete(request: Request) -> Response:
    """Deletes the topic; then the list is shown."""
    access, topic = console_of(request), _topic(request)
    form = await form_of(request)
    problem = unconfirmed(form, topic)
    if problem is not None:
        return await _delete_page(request, problem)
    await topic_changes.delete_topic(access, topic, text_of(form, "topic_id", ""))
    return see(request, "/topics")


async def show_delete_records(request: Request) -> Response:
    """The form to delete records, with a preview."""
    return await _delete_records_page(request, request.query_params.get("before", "").strip())


async def _delete_records_page(request: Request, before: str, error: InvalidFormError | None = None) -> Response:
    access, topic = console_of(request), _topic(request)
    view = await topic_view(access.cluster, topic)
    deletion, problem = None, ""
    if before:
        try:
            deletion = await _deletion(access, view, before)
        except InvalidRequestError as refused:
            problem = str(refused)
    words: list[object] = ["topics", "delete-records", topic]
    words += ["--before", before] if before.isdigit() else ["--all"]
    return render(
        request,
        "topics/delete_records.html",
        **(outcome_of(error) | ({"status": 422} if problem else {})),
        topic=topic,
        topic_id=view.id,
        before=before,
        deletion=deletion,
        problem=problem,
        command_text=command_of(access, *words) if before.isdigit() or before == "end" else "",
    )


async def delete_records(request: Request) -> Response:
    """Deletes the records that were shown; then the partitions are shown."""
    access, topic = console_of(request), _topic(request)
    form = await form_of(request)
    problem = unconfirmed(form, topic)
    if problem is not None:
        return await _delete_records_page(request, text_of(form, "before", "").strip(), problem)
    await topic_changes.delete_records(access, topic, text_of(form, "plan"), text_of(form, "topic_id", ""))
    return see(request, path_of("topics", topic, "partitions"))


async def _deletion(access: Access, view: TopicView, before: str) -> topic_changes.RecordDeletion:
    bounds = await partition_bounds(access.cluster, [view])
    now_ms = access.cluster.clock.now_ms()
    return await topic_changes.plan_deletion(access, view.name, bounds, in_utc(before), now_ms)


# Moves


async def show_move(request: Request) -> Response:
    """The form to move replicas, with the exact effect."""
    access, topic = console_of(request), _topic(request)
    page = await topic_page(access, topic)
    params = request.query_params
    chosen = params.getlist("broker") or [str(each) for each in page.brokers]
    factor, throttle = params.get("replication_factor", ""), params.get("throttle", _RATE)
    plan, problem = None, ""
    try:
        plan = await _move_plan(access, topic, chosen, factor, throttle)
    except InvalidRequestError as error:
        problem = str(error)
    return render(
        request,
        "topics/move.html",
        status=422 if problem else 200,
        page=page,
        values={"brokers": chosen, "replication_factor": factor, "throttle": throttle},
        plan=plan,
        problem=problem,
        has_left_throttle=await has_left_throttle(access),
        commands=[] if plan is None or not plan.moves else _move_commands(access, plan, throttle),
    )


async def move(request: Request) -> Response:
    """Starts the moves as a job; then the job is shown."""
    access, topic = console_of(request), _topic(request)
    form = await form_of(request)
    chosen = [str(each) for each in form.getlist("broker")]
    plan = await _move_plan(
        access, topic, chosen, text_of(form, "replication_factor", ""), text_of(form, "throttle", "")
    )
    plan.check_shown(text_of(form, "plan"))
    if not plan.moves:
        raise InvalidFormError(plan.sentence)
    return see(request, start_plan(access, plan).address)


async def _move_plan(access: Access, topic: str, brokers: list[str], factor: str, throttle: str) -> MovePlan:
    if not all(each.isascii() and each.isdigit() for each in brokers):
        raise InvalidFormError("brokers must be numbers")
    count = _count(factor, "replication factor")
    try:
        rate = parse_size(throttle.strip().removesuffix("/s")) if throttle.strip() else None
    except BadSizeError as error:
        raise InvalidFormError(f"throttle: {error}") from None
    return await plan_topic(
        access, topic, [int(each) for each in brokers], None if count == BROKER_DEFAULT else count, rate
    )


def _move_commands(access: Access, plan: MovePlan, throttle: str) -> list[str]:
    generate: list[object] = ["cluster", "reassign", "generate"]
    generate += ["--brokers", ",".join(map(str, plan.brokers)), "--topic", plan.topic]
    if plan.replication_factor is not None:
        generate += ["--replication-factor", plan.replication_factor]
    execute: list[object] = ["cluster", "reassign", "execute", "plan.json"]
    if throttle.strip():
        execute += ["--throttle", throttle.strip()]
    return [f"{command_of(access, *generate)} > plan.json", command_of(access, *execute)]


def _topic(request: Request) -> str:
    return str(request.path_params["topic"])


_ONE: Final = "/topics/{topic}"
routes = [
    Route("/topics", show_list),
    Route("/topics/~create", show_create, methods=["GET"]),
    Route("/topics/~create", create, methods=["POST"]),
    Route(_ONE, show_overview),
    Route(f"{_ONE}/partitions", show_partitions),
    Route(f"{_ONE}/groups", show_groups),
    Route(f"{_ONE}/schema", show_schema),
    Route(f"{_ONE}/config", show_config, methods=["GET"]),
    Route(f"{_ONE}/config", change_config, methods=["POST"]),
    Route(f"{_ONE}/grow", show_grow, methods=["GET"]),
    Route(f"{_ONE}/grow", grow, methods=["POST"]),
    Route(f"{_ONE}/delete", show_delete, methods=["GET"]),
    Route(f"{_ONE}/delete", delete, methods=["POST"]),
    Route(f"{_ONE}/delete-records", show_delete_records, methods=["GET"]),
    Route(f"{_ONE}/delete-records", delete_records, methods=["POST"]),
    Route(f"{_ONE}/move", show_move, methods=["GET"]),
    Route(f"{_ONE}/move", move, methods=["POST"]),
]
