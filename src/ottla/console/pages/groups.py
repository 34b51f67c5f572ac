"""`/groups` and `/groups/{group}`: groups of all four types, resets of their offsets, deletions."""

import shlex
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.admin.group_requests import GroupMember
from ottla.console.services import groups, offset_resets
from ottla.console.services.offset_resets import ResetPreview, ResetWish
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
    unconfirmed,
)
from ottla.console.web.routes import SubpageRoute
from ottla.console.web.windows import window
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.operations.groups.progress import partitions_text
from ottla.operations.groups.reset import GroupInUseError, in_use_words


def assignment_words(member: GroupMember) -> str:
    """The partitions of a member: orders:0,1 users:3."""
    if member.assignment is None:
        return "in a format of the client"
    return partitions_text(member.assignment)


async def show_list(request: Request) -> Response:
    """All groups."""
    access = console_of(request)
    found = await groups.find_groups(access)
    kind = request.query_params.get("kind", "")
    rows = [each for each in found.rows if kind in ("", each.kind)]
    shown = window(
        request,
        rows,
        text=lambda row: f"{row.group_id} {row.kind} {row.state}",
        sorts={
            "group": lambda row: row.group_id.casefold(),
            "kind": lambda row: row.kind,
            "state": lambda row: row.state,
            "members": lambda row: row.members,
            "lag": lambda row: row.lag,
            "rate": lambda row: row.rate,
            "coordinator": lambda row: row.coordinator,
        },
        default="-lag",
    )
    counts = [(each, sum(row.kind == each for row in found.rows)) for each in groups.KINDS]
    return render(request, "groups/list.html", found=found, window=shown, kind=kind, counts=counts)


async def show_group(request: Request) -> Response:
    """One group."""
    access = console_of(request)
    page = await groups.find_group(access, request.path_params["group"])
    rows = window(
        request,
        page.progress,
        text=lambda row: f"{row.partition} {'' if row.member is None else row.member.client_id}",
        sorts={
            "topic": lambda row: row.partition,
            "offset": lambda row: None if row.committed is None else row.committed.offset,
            "end": lambda row: row.end,
            "lag": lambda row: row.lag,
            "member": lambda row: None if row.member is None else row.member.client_id,
        },
        default="topic",
    )
    return render(
        request, "groups/group.html", page=page, group=page.group, window=rows, assignment_words=assignment_words
    )


async def show_reset(request: Request) -> Response:
    """The form of a reset; with a target in the address, also its preview. Changes nothing."""
    return await _reset_page(request, dict(request.query_params))


async def _reset_page(request: Request, fields: Mapping[str, str], error: OttlaError | None = None) -> Response:
    """The form as it was filled. After an error of the reset itself, without a preview: offsets have changed."""
    access = console_of(request)
    group_id = request.path_params["group"]
    preview: ResetPreview | None = None
    command, problem, in_use = "", "" if error is None else str(error), ""
    try:
        page: groups.GroupPage | None = await groups.find_group(access, group_id)
    except NotFoundError:
        # A reset creates a group that does not exist.
        page = None
    if page is not None and not page.group.is_idle:
        in_use = in_use_words(page.group)
    elif "to" in fields and error is None:
        try:
            wish = offset_resets.parse_wish(fields, group_id, access.cluster.clock.now_ms())
            command = _reset_command(request, group_id, wish)
            preview = await offset_resets.preview_reset(access, group_id, wish)
        except GroupInUseError as error:
            in_use = str(error)
        except OttlaError as error:
            problem = str(error)
    return render(
        request,
        "groups/reset.html",
        status=422 if problem else 200,
        group_id=group_id,
        page=page,
        fields=fields,
        targets=list(offset_resets.TARGETS.items()),
        preview=preview,
        command_text=command,
        problem=problem,
        in_use=in_use,
    )


def _reset_command(request: Request, group_id: str, wish: ResetWish) -> str:
    words = ("groups", "reset-offsets", group_id, *wish.words, "--execute")
    text = command_of(console_of(request), *words)
    if wish.stdin is None:
        return text
    # Each line is quoted: what the form holds may come from a link, and must not become a command.
    return f"printf '%s\\n' {' '.join(map(shlex.quote, wish.stdin.strip().splitlines()))} | {text}"


async def reset(request: Request) -> Response:
    """Sets the previewed offsets. If they cannot be set, the form is shown again as it was filled."""
    access = console_of(request)
    group_id = request.path_params["group"]
    form = await form_of(request)
    try:
        await offset_resets.reset_offsets(access, group_id, text_of(form, "plan"))
    except InvalidRequestError as error:
        return await _reset_page(request, {name: text_of(form, name, "") for name in ("to", "value", "topics")}, error)
    return see(request, path_of("groups", group_id))


async def show_delete(request: Request) -> Response:
    """Asks before a group is deleted."""
    return await _delete_page(request)


async def _delete_page(request: Request, error: InvalidFormError | None = None) -> Response:
    access = console_of(request)
    page = await groups.find_group(access, request.path_params["group"])
    in_use = "" if page.group.is_idle else in_use_words(page.group, "delete it")
    return render(request, "groups/delete.html", **outcome_of(error), page=page, group=page.group, in_use=in_use)


async def delete(request: Request) -> Response:
    """Deletes a group."""
    access = console_of(request)
    group_id = request.path_params["group"]
    form = await form_of(request)
    problem = unconfirmed(form, group_id)
    if problem is not None:
        return await _delete_page(request, problem)
    await groups.delete_group(access, group_id)
    return see(request, "/groups")


async def show_delete_offsets(request: Request) -> Response:
    """Asks which offsets are deleted, and shows them."""
    return await _delete_offsets_page(request, request.query_params.get("topics", "").split())


async def _delete_offsets_page(request: Request, choices: list[str], error: InvalidFormError | None = None) -> Response:
    access = console_of(request)
    group_id = request.path_params["group"]
    page = await groups.find_group(access, group_id)
    plan = await groups.plan_offset_deletion(access, group_id, choices) if choices else None
    return render(
        request,
        "groups/delete_offsets.html",
        **outcome_of(error),
        page=page,
        group=page.group,
        plan=plan,
        choices=choices,
    )


async def delete_offsets(request: Request) -> Response:
    """Deletes offsets of a group."""
    access = console_of(request)
    group_id = request.path_params["group"]
    form = await form_of(request)
    choices = text_of(form, "topics").split()
    problem = unconfirmed(form, group_id)
    if problem is not None:
        return await _delete_offsets_page(request, choices, problem)
    if not choices:
        raise InvalidFormError("topics must not be empty")
    await groups.delete_offsets(access, await groups.plan_offset_deletion(access, group_id, choices))
    return see(request, path_of("groups", group_id))


# A group id may have slashes, and end like a page about one group.
routes = [
    Route("/groups", show_list),
    SubpageRoute("/groups/{group:name}/reset", show_reset, methods=["GET"]),
    SubpageRoute("/groups/{group:name}/reset", reset, methods=["POST"]),
    SubpageRoute("/groups/{group:name}/delete", show_delete, methods=["GET"]),
    SubpageRoute("/groups/{group:name}/delete", delete, methods=["POST"]),
    SubpageRoute("/groups/{group:name}/delete-offsets", show_delete_offsets, methods=["GET"]),
    SubpageRoute("/groups/{group:name}/delete-offsets", delete_offsets, methods=["POST"]),
    Route("/groups/{group:name}", show_group),
]
