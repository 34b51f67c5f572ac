"""Admin requests about the SCRAM credentials of users: describe, alter.

Passwords do not leave the process: the broker gets the salted hash.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client.arguments import ArgumentError, check_fields
from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.errors import OttlaError
from ottla.protocol.apis import ApiKey
from ottla.security.scram_credential import SALT_BYTES, ScramMechanism, salted_password

ITERATIONS_DEFAULT: Final = 8192


def _mechanism(given: ScramMechanism | str) -> ScramMechanism:
    try:
        return ScramMechanism(given.upper().replace("_", "-"))
    except ValueError:
        known = ", ".join(ScramMechanism)
        raise ArgumentError(f"mechanism {given!r} is not a SCRAM mechanism; use one of {known}") from None


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """Sets the password of a user for one mechanism (`SCRAM-SHA-256` or `SCRAM-SHA-512`).

    Without a salt a random one is used. Raises `ArgumentError` for a field of the wrong type.
    """

    user: str
    mechanism: ScramMechanism | str
    password: str | bytes = field(repr=False)
    iterations: int = ITERATIONS_DEFAULT
    salt: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "mechanism", _mechanism(self.mechanism))
        if not self.password:
            raise ArgumentError(f"the password of user {self.user!r} must not be empty")


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """Deletes the password of a user for one mechanism. Raises `ArgumentError` for a field of the wrong type."""

    user: str
    mechanism: ScramMechanism | str

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "mechanism", _mechanism(self.mechanism))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialInfo:
    """What brokers tell about a user's password: for which mechanism it is, and how it is hashed."""

    mechanism: ScramMechanism
    iterations: int


async def describe_user_scram_credentials(
    cluster: Cluster, users: Collection[str] | None = None
) -> tuple[dict[str, tuple[ScramCredentialInfo, ...]], dict[str, OttlaError]]:
    """(the credentials by user, users that cannot be described); by default all users."""
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest, UserName

    message = DescribeUserScramCredentialsRequest(
        users=None if users is None else tuple(UserName(name=name) for name in users)
    )
    found: dict[str, tuple[ScramCredentialInfo, ...]] = {}
    errors: dict[str, OttlaError] = {}
    response = await cluster.retry(lambda: cluster.to_controller(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, message))
    if response.error_code:
        raise answer_error(int(response.error_code), "SCRAM credentials", response.error_message)
    by_number = {each.wire_type: each for each in ScramMechanism}
    for result in sorted(response.results, key=lambda each: each.user):
        if result.error_code:
            errors[result.user] = answer_error(int(result.error_code), f"user {result.user}", result.error_message)
        else:
            found[result.user] = tuple(
                ScramCredentialInfo(mechanism=by_number[int(each.mechanism)], iterations=int(each.iterations))
                for each in result.credential_infos
                if int(each.mechanism) in by_number
            )
    return found, errors


async def alter_user_scram_credentials(
    cluster: Cluster, alterations: Sequence[UserScramCredentialUpsertion | UserScramCredentialDeletion]
) -> tuple[list[str], dict[str, OttlaError]]:
    """(the users that were altered, those that were not)."""
    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from kio.static.primitive import i8, i32

    deletions, upsertions = [], []
    for each in alterations:
        mechanism = ScramMechanism(each.mechanism)
        if isinstance(each, UserScramCredentialDeletion):
            deletions.append(ScramCredentialDeletion(name=each.user, mechanism=i8(mechanism.wire_type)))
            continue
        salt = secrets.token_bytes(SALT_BYTES) if each.salt is None else each.salt
        upsertions.append(
            ScramCredentialUpsertion(
                name=each.user,
                mechanism=i8(mechanism.wire_type),
                iterations=i32(each.iterations),
                salt=salt,
                salted_password=salted_password(mechanism, each.password, salt, each.iterations),
            )
        )
    message = AlterUserScramCredentialsRequest(deletions=tuple(deletions), upsertions=tuple(upsertions))
    response = await cluster.retry(lambda: cluster.to_controller(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, message))
    errors: dict[str, OttlaError] = {
        result.user: answer_error(int(result.error_code), f"user {result.user}", result.error_message)
        for result in response.results
        if result.error_code
    }
    return [each.user for each in alterations if each.user not in errors], errors
