"""Users, delegation tokens, ACLs and quotas: what there is, what a change would do, and the change itself.

Plans are pure: they compare what is with what would be, so that a page can show the effect before anything happens.
Passwords are arguments of `set_password` only; no plan, command or row has one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.admin.acls import (
    ACL,
    CLUSTER_RESOURCE_NAME,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    ResourcePattern,
    ResourcePatternFilter,
)
from ottla.client.admin.quota_requests import spelled
from ottla.client.admin.user_requests import (
    ITERATIONS_DEFAULT,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.errors import AnswerError
from ottla.console.services.permissions import (
    AuthorizerFacts,
    NoAuthorizerError,
    NotPermittedError,
    TokensDisabledError,
    needing,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.operations.security.acl_decision import Question, decide
from ottla.operations.security.acl_words import (
    SUBJECT_PREFIX,
    needed_operations,
    operations_by_spelling,
    spelled_operation,
)
from ottla.operations.sizes import BadSizeError, parse_size
from ottla.security.acl_index import Verdict
from ottla.security.acls import WILDCARD, WILDCARD_PRINCIPAL
from ottla.security.quota_entity import DEFAULT_NAME, QuotaEntity
from ottla.security.quota_rules import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    checked_quota,
)
from ottla.security.resources import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.client.admin.async_admin import AsyncAdmin
    from ottla.client.admin.token_requests import DelegationToken

Words = tuple[str, ...]
"""A command without its first word and without the options that reach the cluster, which pages add."""
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_SOMEONE: Final = "User:another-user"
_SOMEWHERE: Final = "192.0.2.1"
"""An address for documentation: it stands for clients that no ACL names."""
_OFF: Final = frozenset(
    {
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)

# Users


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRow:
    """A user with passwords for SCRAM."""

    user: str
    credentials: tuple[tuple[str, int], ...]
    """Mechanisms, and how many rounds each password is hashed."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms with a password."""
        return tuple(name for name, _ in self.credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPlan:
    """What setting a password would do."""

    user: str
    added: tuple[str, ...]
    """Mechanisms that get a password."""
    replaced: tuple[str, ...]
    """Mechanisms whose password is changed."""

    @property
    def is_new(self) -> bool:
        """Whether the user has no password that would be replaced."""
        return not self.replaced

    @property
    def command(self) -> "Words":
        """The same for a terminal, which asks for the password."""
        chosen = (*self.added, *self.replaced)
        mechanism = [] if set(chosen) == set(MECHANISMS) else ["--mechanism", ",".join(chosen)]
        return ("users", "create", self.user, *mechanism, *(["--replace"] if self.replaced else []))


async def list_users(admin: "AsyncAdmin") -> list[UserRow]:
    """All users with SCRAM passwords. Raises `NotPermittedError`."""
    with needing("DESCRIBE", "cluster", "list users"):
        found = await admin.describe_user_scram_credentials()
    return [
        UserRow(user=user, credentials=tuple((each.mechanism.value, each.iterations) for each in found[user]))
        for user in found
    ]


def plan_user(rows: Iterable[UserRow], user: str, mechanisms: Sequence[str]) -> UserPlan:
    """What setting a password would do. Raises `InvalidRequestError`."""
    if not user:
        raise InvalidRequestError("the name of the user must not be empty")
    chosen = [each for each in MECHANISMS if each in mechanisms]
    if not chosen or len(chosen) != len(set(mechanisms)):
        raise InvalidRequestError(f"choose at least one mechanism of {', '.join(MECHANISMS)}")
    taken = next((row.mechanisms for row in rows if row.user == user), ())
    return UserPlan(
        user=user,
        added=tuple(each for each in chosen if each not in taken),
        replaced=tuple(each for each in chosen if each in taken),
    )


async def set_password(admin: "AsyncAdmin", user: str, mechanisms: Sequence[str], password: str) -> None:
    """Creates a user, or changes its password. The password is hashed here; brokers never see it."""
    with needing("ALTER", "cluster", "change users"):
        for each in mechanisms:
            # One request for each: brokers refuse a user that is listed twice.
            wanted = UserScramCredentialUpsertion(user, each, password, ITERATIONS_DEFAULT)
            await admin.alter_user_scram_credentials([wanted])


async def delete_user(admin: "AsyncAdmin", user: str, mechanisms: Sequence[str]) -> None:
    """Deletes the passwords of a user. Its ACLs, quotas and tokens stay."""
    with needing("ALTER", "cluster", "delete users"):
        for each in mechanisms:
            await admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, each)])


# Delegation tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A delegation token, without its secret. Times are in milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    """Until when it can be renewed."""


async def list_tokens(admin: "AsyncAdmin") -> list[TokenRow]:
    """The tokens that the user may see. Raises `TokensDisabledError`."""
    return [
        TokenRow(
            token_id=each.token_id,
            owner=each.owner,
            requester=each.requester,
            renewers=each.renewers,
            issued_ms=each.issue_timestamp,
            expires_ms=each.expiry_timestamp,
            max_ms=each.max_timestamp,
        )
        for each in await _tokens(admin)
    ]


async def expire_token(admin: "AsyncAdmin", token_id: str) -> None:
    """Deletes a token. Its secret, which brokers want as proof, is asked for and not kept."""
    for each in await _tokens(admin):
        if each.token_id == token_id:
            await admin.expire_delegation_token(each.hmac)
            return
    raise InvalidRequestError(f"there is no token {token_id}, or you may not see it")


async def _tokens(admin: "AsyncAdmin") -> "list[DelegationToken]":
    try:
        return await admin.describe_delegation_token()
    except AnswerError as error:
        if error.error_code in _OFF:
            raise TokensDisabledError(str(error)) from error
        raise


# ACLs


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEffect:
    """What a change means for one principal and one operation: what the ACLs say before and after."""

    principal: str
    operation: str
    resource: str
    host: str
    before: str
    after: str
    note: str

    @property
    def is_change(self) -> bool:
        """Whether what was allowed is denied afterwards, or the other way round."""
        return self.before.partition(" ")[0] != self.after.partition(" ")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclPlan:
    """What adding or removing ACLs would do."""

    acls: tuple[ACL, ...]
    """What is created or removed."""
    unchanged: tuple[ACL, ...]
    """What was asked for and exists already."""
    effects: tuple[AclEffect, ...]
    warnings: tuple[str, ...]
    commands: tuple[Words, ...]
    """The same for a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclForm:
    """ACLs as a form describes them: one for each operation."""

    principal: str
    permission: str
    """allow or deny."""
    word: str
    """topic, group, cluster, transactional-id, token, user or subject."""
    name: str
    pattern: str
    """literal or prefixed."""
    host: str
    operations: tuple[str, ...]
    """As kafka-acls spells them; `producer` and `consumer` stand for what those need."""

    def acls(self) -> list[ACL]:
        """The ACLs. Raises `InvalidRequestError`."""
        if ":" not in self.principal or not self.principal.partition(":")[2]:
            raise InvalidRequestError(f"principal {self.principal!r} must have the form Type:name, as User:alice")
        if self.permission not in ("allow", "deny"):
            raise InvalidRequestError("choose whether it is allowed or denied")
        pattern = self.resource_pattern()
        return [
            ACL(self.principal, self.host or WILDCARD, each, ACLPermissionType[self.permission.upper()], pattern)
            for each in self._operations(pattern.resource_type)
        ]

    def _operations(self, kind: ACLResourceType) -> list[ACLOperation]:
        known = operations_by_spelling()
        found: dict[ACLOperation, None] = {}
        for each in self.operations:
            if each in ("producer", "consumer"):
                found |= dict.fromkeys(
                    needed_operations(kind, producer=each == "producer", consumer=each == "consumer")
                )
            elif each not in known:
                raise InvalidRequestError(f"{each!r} is not an operation")
            else:
                found[known[each]] = None
        if not found:
            raise InvalidRequestError("choose at least one operation")
        return list(found)

    def resource_pattern(self) -> ResourcePattern:
        """The resources that the ACLs are about. Raises `InvalidRequestError`."""
        if self.word == "cluster":
            return ResourcePattern(ACLResourceType.CLUSTER, CLUSTER_RESOURCE_NAME)
        if self.word not in _ACL_TYPES:
            raise InvalidRequestError(f"{self.word!r} is not a type of resource")
        if not self.name:
            raise InvalidRequestError(f"name the {self.word}, or write * for all")
        if self.pattern not in ("literal", "prefixed"):
            raise InvalidRequestError("choose whether the name is a name or a prefix")
        chosen = ACLResourcePatternType[self.pattern.upper()]
        if self.word != "subject":
            return ResourcePattern(_ACL_TYPES[self.word], self.name, chosen)
        if self.name == WILDCARD and chosen is ACLResourcePatternType.LITERAL:
            return ResourcePattern(ACLResourceType.TOPIC, SUBJECT_PREFIX, ACLResourcePatternType.PREFIXED)
        return ResourcePattern(ACLResourceType.TOPIC, f"{SUBJECT_PREFIX}{self.name}", chosen)


_ACL_TYPES: Final[Mapping[str, ACLResourceType]] = {
    "topic": ACLResourceType.TOPIC,
    "group": ACLResourceType.GROUP,
    "transactional-id": ACLResourceType.TRANSACTIONAL_ID,
    "token": ACLResourceType.DELEGATION_TOKEN,
    "user": ACLResourceType.USER,
    "subject": ACLResourceType.TOPIC,
}
_OPTIONS: Final[Mapping[ACLResourceType, str]] = {
    ACLResourceType.TOPIC: "--topic",
    ACLResourceType.GROUP: "--group",
    ACLResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ACLResourceType.DELEGATION_TOKEN: "--delegation-token",
    ACLResourceType.USER: "--user-principal",
}


async def list_acls(admin: "AsyncAdmin", wanted: ACLFilter | None = None) -> list[ACL]:
    """The ACLs that a filter selects. Raises `NotPermittedError` and `NoAuthorizerError`."""
    with needing("DESCRIBE", "cluster", "list ACLs"):
        return await admin.describe_acls(wanted)


async def acl_counts(admin: "AsyncAdmin") -> dict[str, int] | None:
    """How many ACLs each principal has; None if they cannot be seen."""
    try:
        found = await list_acls(admin)
    except (NotPermittedError, NoAuthorizerError):
        return None
    counts: dict[str, int] = {}
    for each in found:
        counts[each.principal] = counts.get(each.principal, 0) + 1
    return counts


def select_acls(
    acls: Iterable[ACL], *, text: str = "", principal: str = "", word: str = "", name: str = ""
) -> list[ACL]:
    """The ACLs of exactly this principal, of a type, that apply to a resource of this name, and contain a text."""
    needle = text.lower()
    return [
        each
        for each in acls
        if (not principal or each.principal == principal)
        and (not word or word_of(each) == word)
        and (not name or _applies(each, name))
        and needle in str(each).lower()
    ]


def word_of(acl: ACL) -> str:
    """The word for the type of an ACL's resource; subjects of a registry have their own."""
    pattern = acl.resource_pattern
    if pattern.resource_type is ACLResourceType.TOPIC:
        return "subject" if pattern.resource_name.startswith(SUBJECT_PREFIX) else "topic"
    words = {kind: word for word, kind in _ACL_TYPES.items()} | {ACLResourceType.CLUSTER: "cluster"}
    return words[pattern.resource_type]


def name_of(acl: ACL) -> str:
    """The name of an ACL's resource, for people: `*` for all subjects."""
    name = acl.resource_pattern.resource_name
    if word_of(acl) != "subject":
        return name
    return name.removeprefix(SUBJECT_PREFIX) or WILDCARD


def plan_acls(existing: Sequence[ACL], wanted: Sequence[ACL], facts: AuthorizerFacts) -> AclPlan:
    """What creating these ACLs would do."""
    known = set(existing)
    added = tuple(each for each in dict.fromkeys(wanted) if each not in known)
    after = [*existing, *added]
    return AclPlan(
        acls=added,
        unchanged=tuple(each for each in dict.fromkeys(wanted) if each in known),
        effects=tuple(_effects(existing, after, added, facts)),
        warnings=tuple(_add_warnings(existing, added, facts)),
        commands=_acl_commands("add", added or tuple(wanted)),
    )


def plan_removal(existing: Sequence[ACL], removed: Sequence[ACL], facts: AuthorizerFacts) -> AclPlan:
    """What removing these ACLs would do."""
    gone = set(removed)
    kept = tuple(each for each in existing if each in gone)
    after = [each for each in existing if each not in gone]
    return AclPlan(
        acls=kept,
        unchanged=(),
        effects=tuple(_effects(existing, after, kept, facts)),
        warnings=tuple(_remove_warnings(after, kept, facts)),
        commands=_acl_commands("remove", kept),
    )


async def create_acls(admin: "AsyncAdmin", acls: Sequence[ACL]) -> None:
    """Creates ACLs; those that exist stay as they are."""
    with needing("ALTER", "cluster", "create ACLs"):
        await admin.create_acls(acls)


async def remove_acls(admin: "AsyncAdmin", acls: Sequence[ACL]) -> None:
    """Removes exactly these ACLs."""
    filters = [
        ACLFilter(
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
            ResourcePatternFilter(
                each.resource_pattern.resource_type,
                each.resource_pattern.resource_name,
                each.resource_pattern.pattern_type,
            ),
        )
        for each in acls
    ]
    with needing("ALTER", "cluster", "delete ACLs"):
        await admin.delete_acls(filters)


def acl_key(acl: ACL) -> str:
    """An ACL as one value of a form, which `parse_acl_key` reads."""
    pattern = acl.resource_pattern
    fields = (acl.permission_type.name, acl.principal, acl.host, acl.operation.name)
    return "\n".join((*fields, pattern.resource_type.name, pattern.pattern_type.name, pattern.resource_name))


def parse_acl_key(text: str) -> ACL:
    """The ACL of a form's value. Raises `InvalidRequestError`."""
    try:
        permission, principal, host, operation, kind, pattern, name = text.replace("\r", "").split("\n", 6)
        return ACL(
            principal,
            host,
            ACLOperation[operation],
            ACLPermissionType[permission],
            ResourcePattern(ACLResourceType[kind], name, ACLResourcePatternType[pattern]),
        )
    except (ValueError, KeyError) as error:
        raise InvalidRequestError("the form does not name an ACL") from error


def _applies(acl: ACL, name: str) -> bool:
    pattern = acl.resource_pattern
    wanted = f"{SUBJECT_PREFIX}{name}" if word_of(acl) == "subject" else name
    if pattern.pattern_type is ACLResourcePatternType.PREFIXED:
        return wanted.startswith(pattern.resource_name)
    return pattern.resource_name in (wanted, WILDCARD)


def _effects(
    before: Sequence[ACL], after: Sequence[ACL], changed: Sequence[ACL], facts: AuthorizerFacts
) -> "Iterable[AclEffect]":
    for acl in changed:
        question = _question(acl)
        answers = [decide(acls, question) for acls in (before, after)]
        words = [_verdict_words(each.verdict, facts) for each in answers]
        others = [each for each in answers[1].because if each not in changed]
        note = ""
        if facts.super_users is not None and acl.principal in facts.super_users:
            note = "a super user may do everything, with and without this ACL"
        elif words[0].partition(" ")[0] == words[1].partition(" ")[0]:
            note = f"because of another ACL: {others[0]}" if others else "nothing changes"
        pattern = acl.resource_pattern
        prefix = " (prefix)" if pattern.pattern_type is ACLResourcePatternType.PREFIXED else ""
        yield AclEffect(
            principal="every user" if acl.principal == WILDCARD_PRINCIPAL else acl.principal,
            operation=acl.operation.name,
            resource=f"{word_of(acl)} {name_of(acl)}{prefix}",
            host=acl.host,
            before=words[0],
            after=words[1],
            note=note,
        )


def _question(acl: ACL) -> Question:
    """What the ACL itself is about; where it stands for many, one that it covers and others do not name."""
    host = acl.host
    if host == WILDCARD:
        host = _SOMEWHERE
    elif "/" in host:
        host = host.partition("/")[0]
    name = acl.resource_pattern.resource_name
    return Question(
        principal=_SOMEONE if acl.principal == WILDCARD_PRINCIPAL else acl.principal,
        host=host,
        operation=Operation(int(acl.operation)),
        resource_type=ResourceType(int(acl.resource_pattern.resource_type)),
        name=name,
    )


def _verdict_words(verdict: Verdict, facts: AuthorizerFacts) -> str:
    if verdict is not Verdict.NOT_COVERED:
        return str(verdict.value)
    return "allowed (no ACL covers it)" if facts.allows_uncovered else "denied (no ACL covers it)"


def _add_warnings(existing: Sequence[ACL], added: Sequence[ACL], facts: AuthorizerFacts) -> "Iterable[str]":
    covered = {each.resource_pattern for each in existing}
    first = dict.fromkeys(each.resource_pattern for each in added if each.resource_pattern not in covered)
    if facts.allows_uncovered is not False and first:
        yield (
            f"This is the first ACL on {', '.join(map(str, first))}. {_open_words(facts)} everyone may use it now;"
            " afterwards only those that an ACL allows."
        )
    for each in added:
        if each.permission_type is ACLPermissionType.DENY and each.principal == WILDCARD_PRINCIPAL:
            yield f"{each} denies it to every user but super users, you included."


def _remove_warnings(after: Sequence[ACL], removed: Sequence[ACL], facts: AuthorizerFacts) -> "Iterable[str]":
    left = {each.resource_pattern for each in after}
    bare = dict.fromkeys(each.resource_pattern for each in removed if each.resource_pattern not in left)
    if facts.allows_uncovered is not False and bare:
        yield f"No ACL is left on {', '.join(map(str, bare))}. {_open_words(facts)} everyone may use it afterwards."


def _open_words(facts: AuthorizerFacts) -> str:
    name = "allow.everyone.if.no.acl.found"
    return f"{name} is true:" if facts.allows_uncovered else f"If {name} is true,"


def _acl_commands(verb: str, acls: Sequence[ACL]) -> tuple[Words, ...]:
    """One command for all ACLs that differ in their operation only."""
    grouped: dict[tuple[ResourcePattern, str, str, ACLPermissionType], list[str]] = {}
    for each in acls:
        key = each.resource_pattern, each.principal, each.host, each.permission_type
        grouped.setdefault(key, []).append(spelled_operation(each.operation))
    commands: list[Words] = []
    for (pattern, principal, host, permission), operations in grouped.items():
        verdict = permission.name.lower()
        parts = [f"--{verdict}-principal", principal, "--operation", ",".join(operations), *_resource_options(pattern)]
        if host != WILDCARD:
            parts += [f"--{verdict}-host", host]
        commands.append(("acls", verb, *parts))
    return tuple(commands)


def _resource_options(pattern: ResourcePattern) -> list[str]:
    if pattern.resource_type is ACLResourceType.CLUSTER:
        return ["--cluster"]
    is_prefixed = pattern.pattern_type is ACLResourcePatternType.PREFIXED
    name, option = pattern.resource_name, _OPTIONS[pattern.resource_type]
    if pattern.resource_type is ACLResourceType.TOPIC and name.startswith(SUBJECT_PREFIX):
        name, option = name.removeprefix(SUBJECT_PREFIX), "--subject"
        if not name:
            return [option, WILDCARD]
    return [option, name, *(["--resource-pattern-type", "prefixed"] if is_prefixed else [])]


# Quotas

QUOTAS: Final[Mapping[str, str]] = {
    PRODUCER_BYTE_RATE: "bytes per second that a client may produce",
    CONSUMER_BYTE_RATE: "bytes per second that a client may fetch",
    REQUEST_PERCENTAGE: "time of the event loop, in percent of one CPU core",
    CONTROLLER_MUTATION_RATE: "partitions per second that a client may create and delete",
    CONNECTION_CREATION_RATE: "new connections per second from an address",
}
BYTE_RATES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """The quotas of one entity."""

    entity: QuotaEntity
    words: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """One quota before and after; None means that none is set."""

    key: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPlan:
    """What changing the quotas of an entity would do."""

    entity: QuotaEntity
    words: str
    changes: tuple[QuotaChange, ...]
    """Those that differ from what is set."""
    commands: tuple[Words, ...]
    """The same for a terminal."""


async def list_quotas(admin: "AsyncAdmin") -> list[QuotaRow]:
    """All quotas. Raises `NotPermittedError`."""
    with needing("DESCRIBE_CONFIGS", "cluster", "list quotas"):
        found = await admin.describe_client_quotas()
    return [QuotaRow(entity=entity, words=spelled(entity), values=values) for entity, values in found.items()]


def keys_of(entity: QuotaEntity) -> list[str]:
    """The quotas that an entity may have."""
    return [each for each in QUOTAS if (each == CONNECTION_CREATION_RATE) == (entity.ip is not None)]


def quota_entity(user: str | None, client_id: str | None, ip: str | None) -> QuotaEntity:
    """An entity; "" is the default of that type. Raises `InvalidRequestError`."""
    if user is None and client_id is None and ip is None:
        raise InvalidRequestError("name a user, a client id or an address, or choose the default of one")
    if ip is not None and (user is not None or client_id is not None):
        raise InvalidRequestError("a quota of an address cannot be combined with a user or a client id")
    return QuotaEntity(user=user, client_id=client_id, ip=ip)


def plan_quotas(rows: Iterable[QuotaRow], entity: QuotaEntity, given: Mapping[str, str]) -> QuotaPlan:
    """What these values would change; an empty value removes a quota. Raises `InvalidRequestError`."""
    now = next((row.values for row in rows if row.entity == entity), {})
    changes = []
    for key in keys_of(entity):
        if key not in given:
            continue
        after = _quota_value(entity, key, given[key].strip())
        if now.get(key) != after:
            changes.append(QuotaChange(key=key, before=now.get(key), after=after))
    return QuotaPlan(
        entity=entity, words=spelled(entity), changes=tuple(changes), commands=_quota_commands(entity, changes)
    )


async def apply_quotas(admin: "AsyncAdmin", plan: QuotaPlan, *, validate_only: bool = False) -> None:
    """Changes the quotas, or lets the brokers only check whether they would accept it."""
    if plan.changes:
        with needing("ALTER_CONFIGS", "cluster", "change quotas"):
            await admin.alter_client_quotas(
                {plan.entity: {each.key: each.after for each in plan.changes}}, validate_only
            )


def quota_text(key: str, value: float | None) -> str:
    """A value as a form shows it; empty for none."""
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else str(value)


def _quota_value(entity: QuotaEntity, key: str, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(parse_size(text)) if key in BYTE_RATES else float(text)
    except BadSizeError as error:
        raise InvalidRequestError(f"{key}: {error}") from None
    except ValueError:
        raise InvalidRequestError(f"{key}: {text!r} is not a number") from None
    return checked_quota(entity, key, value)


def _quota_commands(entity: QuotaEntity, changes: Sequence[QuotaChange]) -> tuple[Words, ...]:
    options = []
    for option, default, name in (
        ("--user", "--user-defaults", entity.user),
        ("--client-id", "--client-defaults", entity.client_id),
        ("--ip", "--ip-defaults", entity.ip),
    ):
        if name is not None:
            options += [default] if name == DEFAULT_NAME else [option, name]
    wanted = [f"{each.key}={quota_text(each.key, each.after)}" for each in changes if each.after is not None]
    unset = [each.key for each in changes if each.after is None]
    commands: list[Words] = [("quotas", "set", *options, *wanted)] if wanted else []
    return (*commands, *([("quotas", "unset", *options, *unset)] if unset else []))
