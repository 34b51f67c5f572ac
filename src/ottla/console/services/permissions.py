"""May X do Y to Z, and why: decided by the ACLs of the cluster with the index that brokers use.

A console sees what its user may see. What it does not see (the brokers' super.users, whether uncovered resources are
open) is part of the answer: it never claims more than it knows.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.admin.acls import ACL, ACLOperation, ACLPermissionType
from ottla.client.admin.config_requests import ResourceType as ConfigType
from ottla.client.admin.values import ConfigResource
from ottla.client.errors import AnswerError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, InvalidRequestError, OttlaError
from ottla.operations.security.acl_decision import Question, decide
from ottla.operations.security.acl_words import SUBJECT_PREFIX
from ottla.security.acl_authorizer import parse_super_users
from ottla.security.acl_hosts import HostPattern, parse_host
from ottla.security.acl_index import Verdict
from ottla.security.acls import WILDCARD_PRINCIPAL
from ottla.security.resources import CLUSTER_NAME, OPERATIONS, Operation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.client.admin.async_admin import AsyncAdmin

DENIED_CODES: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_AUTHORIZER: Final = "authorizer.class.name"
_SUPER_USERS: Final = "super.users"
_OPEN: Final = "allow.everyone.if.no.acl.found"
_DEFAULTS: Final = {_AUTHORIZER: "", _SUPER_USERS: "", _OPEN: "false"}
_KINDS: Final[Mapping[str, ResourceType]] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
    "subject": ResourceType.TOPIC,
}
KINDS: Final = tuple(_KINDS)
"""The words for types of resources, as in `topic:orders`."""
_OPERATIONS: Final[Mapping[str, Sequence[Operation]]] = {
    "transactional-id": (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    "token": (Operation.DESCRIBE,),
    "user": (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
    "subject": (
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
}
_BY_CLUSTER_TOO: Final = frozenset({Operation.CREATE, Operation.DELETE})
"""What the same operation on the cluster allows for every topic."""


class NotPermittedError(DeniedError):
    """The user may not see or do this; names the operation and the resource that an ACL would have to allow."""

    def __init__(self, operation: str, resource: str, why: str) -> None:
        super().__init__(f"not permitted: {operation} on {resource}, which is needed to {why}")
        self.operation = operation
        self.resource = resource
        self.why = why


class NoAuthorizerError(OttlaError):
    """The brokers have no authorizer: every client may do everything, and there are no ACLs."""


class TokensDisabledError(OttlaError):
    """The brokers have no delegation tokens, or this connection may not use them."""


@contextmanager
def needing(operation: str, resource: str, why: str) -> "Iterator[None]":
    """What is done inside needs this permission. Raises `NotPermittedError`, `NoAuthorizerError` for the answers of
    brokers that mean it."""
    try:
        yield
    except AnswerError as error:
        if error.error_code in DENIED_CODES:
            raise NotPermittedError(operation, resource, why) from error
        if error.error_code == ErrorCode.SECURITY_DISABLED:
            raise NoAuthorizerError("the cluster has no authorizer") from error
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerFacts:
    """What brokers say about their authorizer; None where that cannot be seen."""

    has_authorizer: bool | None
    super_users: frozenset[str] | None
    allows_uncovered: bool | None
    unseen: tuple[str, ...] = ()
    """What cannot be seen, and why, as sentences."""


async def read_facts(admin: "AsyncAdmin") -> AuthorizerFacts:
    """Asks all brokers for the configs of their authorizers."""
    names = list(_DEFAULTS)
    brokers = [str(each.id) for each in (await admin.describe_cluster()).brokers]
    asked = [ConfigResource(ConfigType.BROKER, each, names) for each in brokers]
    outcomes = await admin.describe_configs(asked, raise_errors=False)
    told: list[dict[str, str]] = []
    for resource in asked:
        if resource in outcomes:
            found = outcomes[resource]
            # Brokers leave out what is not set, and hide the values of what they take for a secret.
            values = {name: found[name].value if name in found else _DEFAULTS[name] for name in names}
            told.append({name: value for name, value in values.items() if value is not None})
    hidden = []
    if len(told) < len(asked):
        hidden.append(
            "The brokers' super.users and allow.everyone.if.no.acl.found cannot be read: that needs DESCRIBE_CONFIGS on"
            " the cluster. A super user may do everything, whatever the ACLs say."
        )
    return facts_of(told, hidden)


def facts_of(told: Sequence[Mapping[str, str]], hidden: Iterable[str] = ()) -> AuthorizerFacts:
    """What the configs of brokers mean together; brokers that disagree are part of what cannot be told."""
    unseen = list(hidden)
    users = {each[_SUPER_USERS] for each in told if _SUPER_USERS in each}
    opens = {each[_OPEN] for each in told if _OPEN in each}
    classes = {bool(each[_AUTHORIZER]) for each in told if _AUTHORIZER in each}
    for name, values in ((_SUPER_USERS, users), (_OPEN, opens)):
        if len(values) > 1:
            unseen.append(f"Brokers have different values of {name}: the answer depends on the broker.")
        elif not values and told:
            unseen.append(f"Brokers do not show the value of {name}.")
    return AuthorizerFacts(
        has_authorizer=next(iter(classes)) if len(classes) == 1 else None,
        super_users=parse_super_users(next(iter(users))) if len(users) == 1 else None,
        allows_uncovered=next(iter(opens)).lower() == "true" if len(opens) == 1 else None,
        unseen=tuple(unseen),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What is asked about: `word` is one of `KINDS`."""

    word: str
    name: str

    @property
    def type(self) -> ResourceType:
        """The type in ACLs; a subject of the registry is a topic there."""
        return _KINDS[self.word]

    @property
    def acl_name(self) -> str:
        """The name in ACLs."""
        return f"{SUBJECT_PREFIX}{self.name}" if self.word == "subject" else self.name

    @property
    def operations(self) -> list[Operation]:
        """The operations that exist for it."""
        return list(_OPERATIONS.get(self.word, ())) or sorted(OPERATIONS[self.type])

    def __str__(self) -> str:
        return "cluster" if self.word == "cluster" else f"{self.word}:{self.name}"


def parse_resource(text: str) -> Resource:
    """`topic:orders`, `group:billing`, `cluster`. Raises `InvalidRequestError`."""
    word, colon, name = text.strip().partition(":")
    if word == "cluster" and (not colon or name in ("", CLUSTER_NAME)):
        return Resource(word="cluster", name=CLUSTER_NAME)
    if word not in _KINDS or word == "cluster" or not name:
        known = ", ".join(f"{each}:NAME" for each in KINDS if each != "cluster")
        raise InvalidRequestError(f"{text!r} does not name a resource; write {known} or cluster")
    return Resource(word=word, name=name)


def parse_operation(text: str) -> Operation:
    """An operation by its name: `DescribeConfigs` or `describe_configs`. Raises `InvalidRequestError`."""
    wanted = text.replace("_", "").replace("-", "").replace(" ", "").upper()
    for each in Operation:
        if each is not Operation.ALL and each.name.replace("_", "") == wanted:
            return each
    raise InvalidRequestError(f"{text!r} is not an operation; use names such as READ, WRITE or DESCRIBE")


def principal_of(user: str) -> str:
    """`alice` as `User:alice`; what has a type already stays as it is."""
    return user if ":" in user else f"User:{user}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherAcl:
    """An ACL on the resource that does not decide, and why not."""

    acl: ACL
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationAnswer:
    """Whether one operation on the resource is allowed; None if that cannot be told."""

    operation: Operation
    is_allowed: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer to a question, and everything that led to it."""

    question: Question
    resource: Resource
    is_allowed: bool | None
    """None if it depends on something that cannot be seen."""
    verdict: Verdict
    """What the ACLs say, without super users and the broker's default."""
    reason: str
    deciding: tuple[ACL, ...]
    notes: tuple[str, ...]
    """Rules that were applied, such as an operation that another one implies."""
    others: tuple[OtherAcl, ...]
    unseen: tuple[str, ...]
    operations: tuple[OperationAnswer, ...]
    """The same question for every operation of the resource."""


def explain(acls: Sequence[ACL], question: Question, resource: Resource, facts: AuthorizerFacts) -> Explanation:
    """The answer to a question. `acls` are those that apply to the resource, and those of the cluster."""
    covering = [each for each in acls if _covers(each, resource)]
    found = decide(covering, question)
    is_allowed, reason = _answer(found.verdict, question, facts, len(found.because), resource)
    notes = list(_notes(found.because, question))
    deciding = found.because
    if is_allowed is not True and resource.word == "topic" and question.operation in _BY_CLUSTER_TOO:
        of_cluster = Question(
            principal=question.principal,
            host=question.host,
            operation=question.operation,
            resource_type=ResourceType.CLUSTER,
            name=CLUSTER_NAME,
        )
        by_cluster = decide([each for each in acls if _is_cluster(each)], of_cluster)
        name = question.operation.name
        if by_cluster.verdict is Verdict.ALLOWED:
            is_allowed, deciding = True, by_cluster.because
            reason = f"{name} on the cluster is allowed, which allows it for every topic."
        else:
            notes.append(f"{name} on the cluster would allow it as well, but is not allowed either.")
    return Explanation(
        question=question,
        resource=resource,
        is_allowed=is_allowed,
        verdict=found.verdict,
        reason=reason,
        deciding=deciding,
        notes=tuple(notes),
        others=tuple(_others(covering, deciding, question, found.verdict)),
        unseen=_unseen(facts, resource) if is_allowed is not True or found.verdict is not Verdict.ALLOWED else (),
        operations=tuple(_each_operation(covering, question, resource, facts)),
    )


def _each_operation(
    acls: Sequence[ACL], question: Question, resource: Resource, facts: AuthorizerFacts
) -> "Iterator[OperationAnswer]":
    for operation in resource.operations:
        asked = Question(
            principal=question.principal,
            host=question.host,
            operation=operation,
            resource_type=question.resource_type,
            name=question.name,
        )
        is_allowed, _ = _answer(decide(acls, asked).verdict, asked, facts, 1, resource)
        yield OperationAnswer(operation=operation, is_allowed=is_allowed)


def _answer(
    verdict: Verdict, question: Question, facts: AuthorizerFacts, deciding: int, resource: Resource
) -> tuple[bool | None, str]:
    """Whether it is allowed, and why."""
    if facts.has_authorizer is False:
        return True, "The brokers have no authorizer: every client may do everything."
    # A registry has super users of its own, and refuses what no ACL covers.
    is_subject = resource.word == "subject"
    super_users = None if is_subject else facts.super_users
    allows_uncovered = False if is_subject else facts.allows_uncovered
    if super_users is not None and question.principal in super_users:
        return True, f"{question.principal} is in super.users: it may do everything, and no ACL is looked at."
    if verdict is Verdict.ALLOWED:
        one = "An ACL allows" if deciding == 1 else f"{deciding} ACLs allow"
        return True, f"{one} it, and no ACL denies it."
    unless = "" if super_users is not None else f", unless {question.principal} is a super user"
    answer = False if super_users is not None else None
    if verdict is Verdict.NOT_COVERED:
        if allows_uncovered is True:
            return True, f"No ACL covers {resource}, and {_OPEN} is true: everyone may use it."
        if allows_uncovered is None:
            return None, f"No ACL covers {resource}: it is denied, unless {_OPEN} is true on the brokers{unless}."
        return answer, f"No ACL covers {resource}: it is denied{unless}."
    if deciding:
        return answer, f"An ACL denies it, and a denial takes precedence over everything else{unless}."
    return answer, f"ACLs cover {resource}, but none of them allows this to {question.principal}{unless}."


def _unseen(facts: AuthorizerFacts, resource: Resource) -> tuple[str, ...]:
    if resource.word != "subject":
        return facts.unseen
    return ("The registry's own super users (--super-user) cannot be seen: they may do everything with subjects.",)


def _notes(deciding: Sequence[ACL], question: Question) -> "Iterator[str]":
    asked = question.operation.name
    for name in dict.fromkeys(each.operation.name for each in deciding):
        if name == ACLOperation.ALL.name:
            yield "ALL stands for every operation."
        elif name != asked:
            yield f"An ACL that allows {name} also allows {asked}."
    if any(each.principal == WILDCARD_PRINCIPAL for each in deciding):
        yield f"{WILDCARD_PRINCIPAL} stands for every user."


def _others(
    covering: Sequence[ACL], deciding: Sequence[ACL], question: Question, verdict: Verdict
) -> "Iterator[OtherAcl]":
    for acl in covering:
        if acl not in deciding:
            yield OtherAcl(acl=acl, why=_why_not(acl, question, verdict))


def _why_not(acl: ACL, question: Question, verdict: Verdict) -> str:
    if acl.principal not in (question.principal, WILDCARD_PRINCIPAL):
        return f"it is for {acl.principal}"
    if not HostPattern(acl.host).matches(parse_host(question.host.strip("[]"))):
        return f"it holds only from {acl.host}"
    if acl.permission_type is ACLPermissionType.ALLOW and decide([acl], question).verdict is Verdict.ALLOWED:
        return "a denial takes precedence" if verdict is Verdict.DENIED else "it allows the same"
    if acl.permission_type is ACLPermissionType.DENY:
        return f"it denies {acl.operation.name} only; a denial implies no other operation"
    return f"it allows {acl.operation.name}, not {question.operation.name}"


def _covers(acl: ACL, resource: Resource) -> bool:
    pattern, name = acl.resource_pattern, resource.acl_name
    if int(pattern.resource_type) != int(resource.type):
        return False
    if pattern.pattern_type.name == "PREFIXED":
        return name.startswith(pattern.resource_name)
    return pattern.resource_name in (name, "*")


def _is_cluster(acl: ACL) -> bool:
    return int(acl.resource_pattern.resource_type) == int(ResourceType.CLUSTER)
