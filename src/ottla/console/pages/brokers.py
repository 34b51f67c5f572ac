"""`/brokers` and `/brokers/{id}`: which brokers answer, what they lead, their disks, requests and configs."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.admin.config_requests import ConfigEntry
from ottla.console.services.brokers import (
    broker_configs,
    check_config,
    find_broker,
    is_changed,
    is_dynamic,
    list_brokers,
    set_config,
)
from ottla.console.services.reassignment import find_left_throttle, has_left_throttle, remove_left_throttle
from ottla.console.web.failures import outcome_of
from ottla.console.web.pages import (
    InvalidFormError,
    NotFoundError,
    command_of,
    console_of,
    form_of,
    path_of,
    render,
    see,
    text_of,
)
from ottla.console.web.windows import window
from ottla.model.errors import OttlaError, RetriableError
from ottla.operations.reassignment.throttle import FOLLOWER_REPLICAS, LEADER_REPLICAS, RATES

_SET, _REMOVE = "set", "remove"
TOPIC_CONFIGS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


async def show_list(request: Request) -> Response:
    """All brokers."""
    access = console_of(request)
    rows = await list_brokers(access)
    return render(
        request,
        "brokers/list.html",
        rows=rows,
        away=[each for each in rows if each.level == "error"],
        has_left_throttle=await has_left_throttle(access),
    )


async def show_throttle(request: Request) -> Response:
    """The throttle of replication, and whether it was left behind."""
    access = console_of(request)
    left = await find_left_throttle(access)
    commands = []
    if left.is_left:
        topics = left.configs.topics
        commands = [command_of(access, "configs", "unset", *TOPIC_CONFIGS, "--topic", each) for each in topics]
        for place in left.configs.rates:
            broker = place.removeprefix("broker ") if place.startswith("broker ") else "all"
            commands.append(command_of(access, "configs", "unset", *RATES, "--broker", broker))
    return render(request, "brokers/throttle.html", left=left, commands=commands)


async def remove_throttle(request: Request) -> Response:
    """Removes a throttle that was left behind; then the brokers are shown."""
    await remove_left_throttle(console_of(request))
    return see(request, "/brokers")


async def show_one(request: Request) -> Response:
    """One broker: disks, partitions, requests."""
    broker = _broker(request)
    row, partitions = await find_broker(console_of(request), broker)
    return render(
        request,
        "brokers/broker.html",
        row=row,
        window=window(
            request,
            partitions,
            text=lambda each: f"{each.topic}-{each.partition}",
            sorts={
                "topic": lambda each: (each.topic, each.partition),
                "role": lambda each: (not each.is_leader, each.topic, each.partition),
                "sync": lambda each: (each.is_in_sync, each.topic, each.partition),
                "size": lambda each: each.size_bytes,
                "dir": lambda each: each.log_dir,
            },
            default="topic",
        ),
    )


async def show_configs(request: Request) -> Response:
    """The configs of one broker."""
    broker = _broker(request)
    entries = await broker_configs(console_of(request), broker)
    changed = sum(map(is_changed, entries))
    return render(
        request, "brokers/configs.html", broker=broker, entries=entries, changed=changed, is_changed=is_changed
    )


async def show_config(request: Request) -> Response:
    """One config; with `value` or `remove` in the address, a preview of the change, which the broker has validated."""
    access, broker = console_of(request), _broker(request)
    entry = await _entry(request, broker)
    change = request.query_params.get("change", "")
    value = request.query_params.get("value", entry.value or "")
    if change and entry.is_sensitive:
        raise InvalidFormError("a secret is never part of an address; set it with the form")
    problem: OttlaError | None = None
    if change in (_SET, _REMOVE):
        try:
            await check_config(access, broker, entry, value if change == _SET else None)
        except RetriableError:
            raise
        except OttlaError as error:
            problem = InvalidFormError(f"The broker refuses it: {error}", "value")
    return _config_page(request, entry, value, change, problem)


def _config_page(
    request: Request, entry: ConfigEntry, value: str, change: str, problem: OttlaError | None = None
) -> Response:
    access, broker = console_of(request), _broker(request)
    words = ["set", f"{entry.name}={value}"] if change == _SET else ["unset", entry.name]
    return render(
        request,
        "brokers/config.html",
        **outcome_of(problem, "value"),
        broker=broker,
        entry=entry,
        value=value,
        change="" if problem is not None else change,
        is_dynamic=is_dynamic(entry),
        command_text=command_of(access, "configs", *words, "--broker", broker),
    )


async def change_config(request: Request) -> Response:
    """Sets or removes a config; then the configs. A value that the broker refuses is shown again in its form, unless it
    is a secret: then only the error is."""
    access, broker = console_of(request), _broker(request)
    form = await form_of(request)
    change = text_of(form, "change")
    if change not in (_SET, _REMOVE):
        raise InvalidFormError(f"change must be {_SET} or {_REMOVE}")
    value = text_of(form, "value", "") if change == _SET else None
    entry = await _entry(request, broker)
    try:
        await set_config(access, broker, entry, value)
    except RetriableError:
        raise
    except OttlaError as error:
        return _config_page(request, entry, "" if entry.is_sensitive else value or "", change, error)
    return see(request, path_of("brokers", broker, "configs") + "#changed")


def _broker(request: Request) -> int:
    number: int = request.path_params["broker"]
    return number


async def _entry(request: Request, broker: int) -> ConfigEntry:
    name = request.path_params["name"]
    entries = await broker_configs(console_of(request), broker)
    found = next((each for each in entries if each.name == name), None)
    if found is None:
        raise NotFoundError(f"brokers have no config {name}")
    return found


routes = [
    Route("/brokers", show_list),
    Route("/brokers/~throttle", show_throttle, methods=["GET"]),
    Route("/brokers/~throttle", remove_throttle, methods=["POST"]),
    Route("/brokers/{broker:int}", show_one),
    Route("/brokers/{broker:int}/configs", show_configs),
    Route("/brokers/{broker:int}/configs/{name}", show_config),
    Route("/brokers/{broker:int}/configs/{name}", change_config, methods=["POST"]),
]
