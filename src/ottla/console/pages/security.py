"""`/security/…`: users, delegation tokens, ACLs, quotas, and why someone may do something.

The address of a change has all that it needs: a GET shows the form and the effect, a POST to the same address makes the
change. Passwords are the exception: they are in the body of one POST, and in no address, page, log or audit entry.
"""

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ottla.client.admin.acls import ACL
from ottla.console.cluster.access import ANONYMOUS, Access
from ottla.console.services import permissions, security
from ottla.console.services.permissions import (
    KINDS,
    AuthorizerFacts,
    NoAuthorizerError,
    NotPermittedError,
    TokensDisabledError,
    parse_operation,
    parse_resource,
    principal_of,
)
from ottla.console.services.security import AclForm
from ottla.console.web.failures import outcome_of
from ottla.console.web.pages import (
    InvalidFormError,
    command_of,
    console_of,
    form_of,
    render,
    see,
    text_of,
    unconfirmed,
)
from ottla.console.web.windows import window
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.operations.security.acl_decision import Question
from ottla.operations.security.acl_words import operations_by_spelling, spelled_operation
from ottla.security.resources import Operation

_USERS, _ACLS, _QUOTAS = "/security/users", "/security/acls", "/security/quotas"
_EXPLAIN: Final = "/security/explain"
TABS: Final = (("Users", _USERS), ("ACLs", _ACLS), ("Quotas", _QUOTAS), ("Explain", _EXPLAIN))
_PASSWORD_LENGTH_MAX: Final = 1024
_REMOVED_MAX: Final = 1000
_HOST_DEFAULT: Final = "127.0.0.1"

Page = Callable[[Request, Access], Awaitable[Response]]


def of_security(tab: str, page: Page) -> Callable[[Request], Awaitable[Response]]:
    """A page of the tab; if the user may not see it, or the cluster has no authorizer, a page that says so."""

    async def shown(request: Request) -> Response:
        access = console_of(request)
        try:
            return await page(request, access)
        except NotPermittedError as error:
            grant = ("acls", "add", "--allow-principal", _principal(access), "--operation")
            words = (*grant, spelled_operation(operations_by_spelling()[_spelling(error.operation)]), "--cluster")
            return render(
                request,
                "security/denied.html",
                status=403,
                error=error,
                tab=tab,
                tabs=TABS,
                principal=_principal(access),
                command_text=command_of(access, *words),
            )
        except NoAuthorizerError:
            return render(request, "security/no_authorizer.html", tab=tab, tabs=TABS)

    return shown


# Users


async def show_users(request: Request, access: Access) -> Response:
    """All users with passwords, and the delegation tokens that can be seen."""
    admin = access.admin()
    rows = await security.list_users(admin)
    counts = await security.acl_counts(admin)
    tokens, tokens_error = None, ""
    try:
        tokens = await security.list_tokens(admin)
    except TokensDisabledError as error:
        tokens_error = str(error)
    shown = window(
        request,
        rows,
        text=lambda row: row.user,
        sorts={"user": lambda row: row.user.casefold(), "acls": lambda row: (counts or {}).get(f"User:{row.user}", 0)},
        default="user",
    )
    return render(
        request,
        "security/users.html",
        window=shown,
        counts=counts,
        tokens=tokens,
        tokens_error=tokens_error,
        tabs=TABS,
        tab=_USERS,
    )


async def set_user(request: Request, access: Access) -> Response:
    """Creates a user, or changes its password: who and how is in the address, the password only in the POST."""
    user = request.query_params.get("user", "").strip()
    mechanisms = request.query_params.getlist("mechanism") or list(security.MECHANISMS)
    plan = security.plan_user(await security.list_users(access.admin()), user, mechanisms) if user else None
    problem: OttlaError | None = None
    if request.method == "POST":
        if plan is None:
            raise InvalidFormError("the name of the user must not be empty")
        try:
            password = _password(await form_of(request))
            action = "create user" if plan.is_new else "change password"
            chosen = [*plan.added, *plan.replaced]
            async with access.change(action, user, {"mechanisms": chosen}):
                await security.set_password(access.admin(), user, chosen, password)
            return see(request, f"{_USERS}?{urlencode({'q': user})}")
        except NotPermittedError:
            raise
        except OttlaError as error:
            problem = error
    return render(
        request,
        "security/user.html",
        **outcome_of(problem),
        user=user,
        mechanisms=mechanisms,
        known=security.MECHANISMS,
        plan=plan,
        action=_here(request),
        command_text="" if plan is None else command_of(access, *plan.command),
        tabs=TABS,
        tab=_USERS,
    )


async def delete_user(request: Request, access: Access) -> Response:
    """Deletes the passwords of a user, after its name was typed."""
    user = request.query_params.get("user", "")
    row = next((each for each in await security.list_users(access.admin()) if each.user == user), None)
    if row is None:
        raise InvalidFormError(f"there is no user {user!r}")
    problem = unconfirmed(await form_of(request), user) if request.method == "POST" else None
    if request.method == "POST" and problem is None:
        async with access.change("delete user", user, {"mechanisms": list(row.mechanisms)}):
            await security.delete_user(access.admin(), user, row.mechanisms)
        return see(request, _USERS)
    counts = await security.acl_counts(access.admin())
    return render(
        request,
        "security/delete_user.html",
        **outcome_of(problem),
        row=row,
        acls=None if counts is None else counts.get(f"User:{user}", 0),
        action=_here(request),
        command_text=command_of(access, "users", "delete", user),
        tabs=TABS,
        tab=_USERS,
    )


async def expire_token(request: Request, access: Access) -> Response:
    """Deletes a delegation token, after its id was typed."""
    token_id = request.query_params.get("token", "")
    row = next((each for each in await security.list_tokens(access.admin()) if each.token_id == token_id), None)
    if row is None:
        raise InvalidFormError(f"there is no token {token_id!r}, or you may not see it")
    problem = unconfirmed(await form_of(request), token_id) if request.method == "POST" else None
    if request.method == "POST" and problem is None:
        async with access.change("expire token", token_id, {"owner": row.owner}):
            await security.expire_token(access.admin(), token_id)
        return see(request, _USERS)
    return render(
        request,
        "security/expire_token.html",
        **outcome_of(problem),
        row=row,
        action=_here(request),
        command_text=command_of(access, "tokens", "expire", token_id),
        tabs=TABS,
        tab=_USERS,
    )


# ACLs


async def show_acls(request: Request, access: Access) -> Response:
    """All ACLs, or those of a principal, a type of resource, or a resource."""
    asked = request.query_params
    found = await security.list_acls(access.admin())
    selected = security.select_acls(
        found, principal=asked.get("principal", ""), word=asked.get("type", ""), name=asked.get("name", "")
    )
    shown = window(
        request,
        selected,
        text=lambda acl: f"{acl} {security.word_of(acl)} {security.name_of(acl)}",
        sorts={
            "principal": lambda acl: acl.principal.casefold(),
            "permission": lambda acl: acl.permission_type.name,
            "operation": lambda acl: acl.operation.name,
            "resource": lambda acl: (security.word_of(acl), security.name_of(acl).casefold()),
            "host": lambda acl: acl.host,
        },
        default="resource",
    )
    return render(
        request,
        "security/acls.html",
        window=shown,
        found=found,
        selected=selected,
        asked=asked,
        kinds=KINDS,
        word_of=security.word_of,
        name_of=security.name_of,
        key_of=security.acl_key,
        spelled=spelled_operation,
        removed_max=_REMOVED_MAX,
        tabs=TABS,
        tab=_ACLS,
    )


async def new_acls(request: Request, access: Access) -> Response:
    """Creates ACLs; the address describes them."""
    asked = request.query_params
    form = _acl_form(asked)
    plan: security.AclPlan | None = None
    problem: OttlaError | None = None
    if asked.get("principal") or request.method == "POST":
        try:
            wanted = form.acls()
            existing, facts = await _acls_and_facts(access)
            plan = security.plan_acls(existing, wanted, facts)
        except InvalidRequestError as error:
            problem = error
    if request.method == "POST" and plan is not None:
        details = {"acls": [str(each) for each in plan.acls]}
        async with access.change("create ACLs", form.principal, details):
            await security.create_acls(access.admin(), plan.acls)
        return see(request, f"{_ACLS}?{urlencode({'principal': form.principal})}")
    return render(
        request,
        "security/acl.html",
        **outcome_of(problem),
        form=form,
        plan=plan,
        kinds=KINDS,
        operations=list(operations_by_spelling()),
        commands=_commands(access, plan),
        action=_here(request),
        tabs=TABS,
        tab=_ACLS,
    )


async def delete_acls(request: Request, access: Access) -> Response:
    """Removes ACLs: one, or all that the address selects. What the page showed is removed, and nothing else."""
    existing, facts = await _acls_and_facts(access)
    problem: InvalidFormError | None = None
    if request.method == "POST":
        form = await form_of(request)
        selected = [security.parse_acl_key(each) for each in form.getlist("acl") if isinstance(each, str)]
    else:
        selected = _selected(request.query_params, existing)
    plan = security.plan_removal(existing, selected, facts)
    if request.method == "POST" and len(plan.acls) > 1:
        problem = unconfirmed(await form_of(request), f"{len(plan.acls)} ACLs")
    if request.method == "POST" and problem is None:
        details = {"acls": [str(each) for each in plan.acls]}
        async with access.change("delete ACLs", ", ".join(sorted({each.principal for each in plan.acls})), details):
            await security.remove_acls(access.admin(), plan.acls)
        return see(request, _ACLS)
    if len(plan.acls) > _REMOVED_MAX:
        raise InvalidFormError(f"more than {_REMOVED_MAX} ACLs are selected; narrow the selection")
    return render(
        request,
        "security/delete_acls.html",
        **outcome_of(problem),
        plan=plan,
        key_of=security.acl_key,
        commands=_commands(access, plan),
        tabs=TABS,
        tab=_ACLS,
    )


def _selected(asked: QueryParams, existing: list[ACL]) -> list[ACL]:
    keys = asked.getlist("acl")
    if keys:
        return [security.parse_acl_key(each) for each in keys]
    names = {key: asked.get(key, "") for key in ("q", "principal", "type", "name")}
    if not any(names.values()):
        raise InvalidFormError("select ACLs first")
    return security.select_acls(
        existing, text=names["q"], principal=names["principal"], word=names["type"], name=names["name"]
    )


async def _acls_and_facts(access: Access) -> tuple[list[ACL], AuthorizerFacts]:
    return await security.list_acls(access.admin()), await permissions.read_facts(access.admin())


def _acl_form(asked: QueryParams) -> AclForm:
    principal = asked.get("principal", "").strip()
    return AclForm(
        principal=principal_of(principal) if principal else "",
        permission=asked.get("permission", "allow"),
        word=asked.get("type", "topic"),
        name=asked.get("name", "").strip(),
        pattern=asked.get("pattern", "literal"),
        host=asked.get("host", "").strip() or "*",
        operations=tuple(asked.getlist("operation")),
    )


# Quotas


async def show_quotas(request: Request, access: Access) -> Response:
    """All quotas."""
    rows = await security.list_quotas(access.admin())
    return render(request, "security/quotas.html", rows=rows, quotas=security.QUOTAS, tabs=TABS, tab=_QUOTAS)


async def set_quotas(request: Request, access: Access) -> Response:
    """Changes the quotas of one entity: an empty field removes one."""
    asked = request.query_params
    rows = await security.list_quotas(access.admin())
    entity, plan, problem = None, None, ""
    parts = [each for each in asked.get("kind", "").split("+") if each]
    try:
        if any(name in asked for each in parts for name in (each, f"{each}_default")):
            entity = security.quota_entity(*(_entity_name(asked, each) for each in ("user", "client_id", "ip")))
            given = {key: asked[key] for key in security.QUOTAS if key in asked}
            if given:
                plan = security.plan_quotas(rows, entity, given)
                await security.apply_quotas(access.admin(), plan, validate_only=True)
    except NotPermittedError:
        raise
    except OttlaError as error:
        plan, problem = None, str(error)
    if request.method == "POST" and plan is None:
        problem = problem or "the address does not name a quota"
    elif request.method == "POST" and plan is not None:
        details = {each.key: {"from": each.before, "to": each.after} for each in plan.changes}
        async with access.change("set quotas", plan.words, details):
            await security.apply_quotas(access.admin(), plan)
        return see(request, _QUOTAS)
    now = next((row.values for row in rows if row.entity == entity), {})
    keys = [] if entity is None else security.keys_of(entity)
    return render(
        request,
        "security/quota.html",
        status=422 if problem else 200,
        asked=asked,
        parts=parts,
        entity=entity,
        plan=plan,
        problem=problem,
        values={key: asked.get(key, security.quota_text(key, now.get(key))) for key in keys},
        quotas=security.QUOTAS,
        byte_rates=security.BYTE_RATES,
        commands=_commands(access, plan),
        action=_here(request),
        tabs=TABS,
        tab=_QUOTAS,
    )


def _entity_name(asked: QueryParams, part: str) -> str | None:
    """The name of a part of an entity, "" for its default; None if the entity does not have this part."""
    kind = asked.get("kind", "")
    if part not in kind.split("+"):
        return None
    name = asked.get(part, "").strip()
    if not name and asked.get(f"{part}_default") != "1":
        words = part.replace("_", " ")
        raise InvalidRequestError(f"name the {words}, or choose the default for all others")
    return "" if asked.get(f"{part}_default") == "1" else name


# Explain


async def explain(request: Request, access: Access) -> Response:
    """May X do Y to Z, and why."""
    asked = request.query_params
    if asked.get("type"):
        # The form names type and name apart; the address that people share has one resource.
        resource = "cluster" if asked["type"] == "cluster" else f"{asked['type']}:{asked.get('name', '').strip()}"
        kept = {name: asked.get(name, "") for name in ("user", "operation", "host")}
        return RedirectResponse(f"{_EXPLAIN}?{urlencode({**kept, 'resource': resource})}", status_code=303)
    found, problem = None, ""
    user = asked.get("user", "").strip()
    host = asked.get("host", "").strip() or _HOST_DEFAULT
    if user:
        try:
            what = parse_resource(asked.get("resource", ""))
            question = Question(
                principal=principal_of(user),
                host=host,
                operation=parse_operation(asked.get("operation", "")),
                resource_type=what.type,
                name=what.acl_name,
            )
            acls, facts = await _acls_and_facts(access)
            found = permissions.explain(acls, question, what, facts)
        except InvalidRequestError as error:
            problem = str(error)
    else:
        # Also without a question: a user who may not see ACLs, or a cluster without them, is told at once.
        await security.list_acls(access.admin())
    word, _, name = asked.get("resource", "").partition(":")
    return render(
        request,
        "security/explain.html",
        asked=asked,
        user=user,
        host=host,
        word=word or "topic",
        name="" if word == "cluster" else name,
        found=found,
        problem=problem,
        key_of=security.acl_key,
        kinds=KINDS,
        operations=[each.name for each in Operation if each is not Operation.ALL],
        tabs=TABS,
        tab=_EXPLAIN,
    )


async def to_users(request: Request) -> Response:
    """The first tab."""
    return RedirectResponse(_USERS, status_code=303)


def _password(form: FormData) -> str:
    """The password, typed twice. Raises `InvalidFormError`, which never contains it."""
    password, repeated = text_of(form, "password"), text_of(form, "repeated", "")
    if password != repeated:
        raise InvalidFormError("the passwords differ; nothing was changed", "repeated")
    if len(password) > _PASSWORD_LENGTH_MAX:
        raise InvalidFormError(f"the password is longer than {_PASSWORD_LENGTH_MAX} characters", "password")
    return password


def _commands(access: Access, plan: security.AclPlan | security.QuotaPlan | None) -> list[str]:
    return [] if plan is None else [command_of(access, *words) for words in plan.commands]


def _principal(access: Access) -> str:
    return "User:YOUR-USER" if access.user == ANONYMOUS else principal_of(access.user)


def _spelling(operation: str) -> str:
    return operation.title().replace("_", "")


def _here(request: Request) -> str:
    """This address: a POST to it applies what its parameters say."""
    return f"{request.url.path}?{request.url.query}"


_FORM: Final = ["GET", "POST"]
routes = [
    Route("/security", to_users),
    Route(_USERS, of_security(_USERS, show_users)),
    Route(f"{_USERS}/set", of_security(_USERS, set_user), methods=_FORM),
    Route(f"{_USERS}/delete", of_security(_USERS, delete_user), methods=_FORM),
    Route("/security/tokens/expire", of_security(_USERS, expire_token), methods=_FORM),
    Route(_ACLS, of_security(_ACLS, show_acls)),
    Route(f"{_ACLS}/new", of_security(_ACLS, new_acls), methods=_FORM),
    Route(f"{_ACLS}/delete", of_security(_ACLS, delete_acls), methods=_FORM),
    Route(_QUOTAS, of_security(_QUOTAS, show_quotas)),
    Route(f"{_QUOTAS}/set", of_security(_QUOTAS, set_quotas), methods=_FORM),
    Route(_EXPLAIN, of_security(_EXPLAIN, explain)),
]
