"""Admin requests about delegation tokens: create, renew, expire, describe."""

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ottla.client.arguments import ArgumentError
from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.protocol.apis import ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token. To log in with it, use SCRAM with the user name `token_id` and the password `password`, and
    the SCRAM extension `tokenauth=true`. Times are in milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    hmac: bytes = field(repr=False)
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int

    @property
    def password(self) -> str:
        """The secret as SCRAM wants it."""
        return b64encode(self.hmac).decode("ascii")


async def create_delegation_token(
    cluster: Cluster, renewers: Iterable[str], *, max_lifetime_ms: int, owner: str | None
) -> DelegationToken:
    """Creates a token for this client's principal, or for another owner. Below 0 the lifetime is the broker's."""
    from kio.schema.create_delegation_token.v3.request import CreatableRenewers, CreateDelegationTokenRequest

    may_renew = tuple(renewers)
    owner_type, owner_name = (None, None) if owner is None else _principal(owner)
    message = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=tuple(
            CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_principal, may_renew)
        ),
        max_lifetime=_span(max_lifetime_ms),
    )
    # Not retried if the answer is lost: a second token would be created.
    response = await cluster.to_any(ApiKey.CREATE_DELEGATION_TOKEN, message)
    if response.error_code:
        raise answer_error(int(response.error_code), "creating a delegation token")
    return DelegationToken(
        token_id=response.token_id,
        owner=f"{response.principal_type}:{response.principal_name}",
        requester=f"{response.token_requester_principal_type}:{response.token_requester_principal_name}",
        renewers=may_renew,
        hmac=bytes(response.hmac),
        issue_timestamp=_stamp(response.issue_timestamp),
        expiry_timestamp=_stamp(response.expiry_timestamp),
        max_timestamp=_stamp(response.max_timestamp),
    )


async def renew_delegation_token(cluster: Cluster, hmac: bytes, *, renew_period_ms: int) -> int:
    """When the token now expires. Below 0 the period is the broker's."""
    from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest

    message = RenewDelegationTokenRequest(hmac=hmac, renew_period=_span(renew_period_ms))
    response = await cluster.retry(lambda: cluster.to_any(ApiKey.RENEW_DELEGATION_TOKEN, message))
    if response.error_code:
        raise answer_error(int(response.error_code), "renewing a delegation token")
    return _stamp(response.expiry_timestamp)


async def expire_delegation_token(cluster: Cluster, hmac: bytes, *, expiry_period_ms: int) -> int:
    """When the token now expires. Below 0 it is deleted at once."""
    from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest

    message = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period=_span(expiry_period_ms))
    response = await cluster.retry(lambda: cluster.to_any(ApiKey.EXPIRE_DELEGATION_TOKEN, message))
    if response.error_code:
        raise answer_error(int(response.error_code), "expiring a delegation token")
    return _stamp(response.expiry_timestamp)


async def describe_delegation_token(cluster: Cluster, owners: Iterable[str] | None) -> list[DelegationToken]:
    """The tokens of these owners, or all, that this client may see."""
    from kio.schema.describe_delegation_token.v3.request import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
    )

    message = DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else tuple(
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, owners)
        )
    )
    response = await cluster.retry(lambda: cluster.to_any(ApiKey.DESCRIBE_DELEGATION_TOKEN, message))
    if response.error_code:
        raise answer_error(int(response.error_code), "delegation tokens")
    return [
        DelegationToken(
            token_id=each.token_id,
            owner=f"{each.principal_type}:{each.principal_name}",
            requester=f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
            renewers=tuple(f"{one.principal_type}:{one.principal_name}" for one in each.renewers),
            hmac=bytes(each.hmac),
            issue_timestamp=_stamp(each.issue_timestamp),
            expiry_timestamp=_stamp(each.expiry_timestamp),
            max_timestamp=_stamp(each.max_timestamp),
        )
        for each in sorted(response.tokens, key=lambda token: token.token_id)
    ]


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ArgumentError(f"principal {text!r} must have the form Type:name, such as User:alice")
    return kind, name


def _span(milliseconds: int) -> Any:
    from kio.static.primitive import i64Timedelta

    return i64Timedelta.parse(timedelta(milliseconds=milliseconds))


def _stamp(found: Any) -> int:
    """Some of the responses have these times as datetimes."""
    return round(found.timestamp() * 1000) if isinstance(found, datetime) else int(found)
