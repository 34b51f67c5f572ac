"""DescribeUserScramCredentials and AlterUserScramCredentials: the users that log in with SCRAM.

A client sends the password salted, and never gets anything of it back: only mechanisms and iterations.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.static.primitive import i8, i32

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation
from ottla.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
)

_MECHANISMS: Final[Mapping[int, ScramMechanism]] = {each.wire_type: each for each in ScramMechanism}


class UnacceptableCredentialError(InvalidRequestError):
    """The user name is empty, or the iterations are out of bounds."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class UnknownMechanismError(InvalidRequestError):
    """There is no SCRAM mechanism with this number."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class NoSuchCredentialError(InvalidRequestError):
    """The user has no credential."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class UserTwiceError(InvalidRequestError):
    """A request has a user more than once."""

    code = ErrorCode.DUPLICATE_RESOURCE


# DescribeUserScramCredentials


def describe_user_scram_credentials(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of the users; of all with null or an empty list."""
    results: list[DescribeUserScramCredentialsResult] = []
    code, message = ErrorCode.NONE, None
    try:
        context.check_cluster(Operation.DESCRIBE)
        known: dict[str, list[CredentialInfo]] = {}
        for (mechanism, user), credential in sorted(services.image.scram_credentials.items(), key=lambda each: each[0]):
            info = CredentialInfo(mechanism=i8(mechanism.wire_type), iterations=i32(credential.iterations))
            known.setdefault(user, []).append(info)
        counts = Counter(each.name for each in request.users) if request.users else Counter(sorted(known))
        results = [_described(user, count, known) for user, count in counts.items()]
    except OttlaError as error:
        code, message = error.code, str(error)
        # As in Kafka, a result without a name has the error of the request too.
        results = [
            DescribeUserScramCredentialsResult(
                user="", error_code=wire_error(code), error_message=message, credential_infos=()
            )
        ]
    return DescribeUserScramCredentialsResponse(
        throttle_time=milliseconds(0), error_code=wire_error(code), error_message=message, results=tuple(results)
    )


def _described(user: str, count: int, known: Mapping[str, list[CredentialInfo]]) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, None
    if count > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"user {user!r} is named more than once"
    elif user not in known:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credentials"
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=wire_error(code),
        error_message=message,
        credential_infos=() if code else tuple(known[user]),
    )


# AlterUserScramCredentials


async def alter_user_scram_credentials(
    services: Services, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Sets and deletes credentials; users whose change is not valid leave the others alone."""
    asked: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    errors: dict[str, OttlaError | None] = dict.fromkeys(each.name for each in asked)
    try:
        context.check_cluster(Operation.ALTER)
        changes: dict[tuple[ScramMechanism, str], ScramCredential | None] = {}
        counts = Counter(each.name for each in asked)
        for each in asked:
            try:
                user = _checked_user(each)
                if counts[each.name] > 1:
                    raise UserTwiceError(f"user {each.name!r} cannot be altered twice in one request")
                changes[user] = _credential(user[0], each) if isinstance(each, ScramCredentialUpsertion) else None
            except InvalidRequestError as error:
                errors[each.name] = errors[each.name] or error
        if changes:
            altered = await services.controller.alter_scram_credentials(changes)
            await services.wait_revision(altered.revision)
            for name, exists in altered.outcomes:
                if not exists:
                    errors[name] = NoSuchCredentialError(f"user {name!r} has no such SCRAM credential")
    except OttlaError as error:
        errors = {name: known or error for name, known in errors.items()}
    return AlterUserScramCredentialsResponse(
        throttle_time=milliseconds(0),
        results=tuple(
            AlterUserScramCredentialsResult(
                user=name,
                error_code=wire_error(ErrorCode.NONE if error is None else error.code),
                error_message=None if error is None else str(error),
            )
            for name, error in errors.items()
        ),
    )


def _checked_user(asked: ScramCredentialDeletion | ScramCredentialUpsertion) -> tuple[ScramMechanism, str]:
    if not asked.name:
        raise UnacceptableCredentialError("the user name must not be empty")
    mechanism = _MECHANISMS.get(asked.mechanism)
    if mechanism is None:
        raise UnknownMechanismError(f"there is no SCRAM mechanism with number {asked.mechanism}")
    return mechanism, asked.name


def _credential(mechanism: ScramMechanism, asked: ScramCredentialUpsertion) -> ScramCredential:
    if not ITERATIONS_MIN <= asked.iterations <= ITERATIONS_MAX:
        raise UnacceptableCredentialError(
            f"{asked.iterations} iterations; there must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    if not asked.salt or not asked.salted_password:
        raise UnacceptableCredentialError("the salt and the salted password must not be empty")
    return credential_of_salted(mechanism, asked.salted_password, asked.salt, asked.iterations)
