"""Delegation tokens: what a cluster stores of them, and the secret that is derived from a token's id. Pure.

Only the id is stored. The secret is an HMAC of it under `delegation.token.secret.key`, which all brokers share, so that
each of them can check it. Clients log in with SCRAM: the id is the user name, the secret in base64 the password.
"""

import hmac
from base64 import b64encode
from dataclasses import dataclass, replace
from typing import Final

from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, InvalidRequestError
from ottla.security.principals import USER_TYPE, Principal

RENEWERS_MAX: Final = 20
NAME_LENGTH_MAX: Final = 1000
TOKENS_MAX: Final = 1000
"""The tokens that one user may have created and that still exist."""


class TokensDisabledError(InvalidRequestError):
    """The broker has no `delegation.token.secret.key`."""

    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


class TokenNotFoundError(InvalidRequestError):
    """There is no such token."""

    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


class TokenOwnerMismatchError(DeniedError):
    """The client is neither the owner, nor the requester, nor a renewer of the token."""

    code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


class TokenRequestNotAllowedError(DeniedError):
    """Requests about tokens need an authentication, and not one by a token; tokens have limits."""

    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class TokenExpiredError(InvalidRequestError):
    """The token has expired."""

    code = ErrorCode.DELEGATION_TOKEN_EXPIRED


class InvalidPrincipalTypeError(InvalidRequestError):
    """Renewers must be users."""

    code = ErrorCode.INVALID_PRINCIPAL_TYPE


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLifetimes:
    """How long tokens live: from issue to the last renewal, and from one renewal to the next."""

    max_ms: int
    renewal_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """A delegation token. A client that logs in with it is `owner`."""

    id: str
    owner: Principal
    requester: Principal
    """The principal that created it, on behalf of the owner."""
    renewers: tuple[Principal, ...]
    issued_ms: int
    expiry_ms: int
    """From here on it is not accepted, unless it is renewed before. At most `max_ms`."""
    max_ms: int
    """The limit of renewals."""

    def is_expired(self, now_ms: int) -> bool:
        """Whether the token is not accepted any more."""
        return now_ms >= self.expiry_ms

    @property
    def users(self) -> tuple[Principal, ...]:
        """Who may renew, expire and see the token: owner, requester and renewers."""
        return (self.owner, self.requester, *self.renewers)

    def may_use(self, principal: Principal) -> bool:
        """Whether the principal may renew, expire and see the token."""
        return principal in self.users


def new_token(
    token_id: str,
    *,
    owner: Principal,
    requester: Principal,
    renewers: tuple[Principal, ...],
    max_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> TokenInfo:
    """A token that lives for `max_ms` at most, or if that is not positive as long as tokens may.

    Raises InvalidPrincipalTypeError, and TokenRequestNotAllowedError if it would be too large: every user may create
    tokens, and all brokers keep them in memory.
    """
    if len(renewers) > RENEWERS_MAX:
        raise TokenRequestNotAllowedError(
            f"a delegation token may have at most {RENEWERS_MAX} renewers, not {len(renewers)}"
        )
    if any(len(each.name) > NAME_LENGTH_MAX for each in (owner, *renewers)):
        raise TokenRequestNotAllowedError(f"a name of more than {NAME_LENGTH_MAX} characters")
    for each in renewers:
        if each.type != USER_TYPE:
            raise InvalidPrincipalTypeError(f"renewer {str(each)!r} is not of type {USER_TYPE}")
    last_ms = now_ms + (min(max_ms, lifetimes.max_ms) if max_ms > 0 else lifetimes.max_ms)
    return TokenInfo(
        id=token_id,
        owner=owner,
        requester=requester,
        renewers=renewers,
        issued_ms=now_ms,
        expiry_ms=min(last_ms, now_ms + lifetimes.renewal_ms),
        max_ms=last_ms,
    )


def renewed(
    token: TokenInfo, principal: Principal, *, period_ms: int, lifetimes: TokenLifetimes, now_ms: int
) -> TokenInfo:
    """The token with a later expiry: `period_ms` from now, or if that is not positive the default.

    Raises TokenExpiredError and TokenOwnerMismatchError.
    """
    if token.is_expired(now_ms):
        raise TokenExpiredError("the delegation token has expired")
    _check_may_use(token, principal)
    period = min(period_ms, lifetimes.renewal_ms) if period_ms > 0 else lifetimes.renewal_ms
    return replace(token, expiry_ms=min(token.max_ms, now_ms + period))


def expired(token: TokenInfo, principal: Principal, *, period_ms: int, now_ms: int) -> TokenInfo | None:
    """The token that expires `period_ms` from now; None if that is negative: then it is to be removed at once.

    Raises TokenExpiredError and TokenOwnerMismatchError.
    """
    _check_may_use(token, principal)
    if period_ms < 0:
        return None
    if token.is_expired(now_ms):
        raise TokenExpiredError("the delegation token has expired")
    return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))


def _check_may_use(token: TokenInfo, principal: Principal) -> None:
    if not token.may_use(principal):
        raise TokenOwnerMismatchError(f"{principal} is neither owner, requester nor renewer of the delegation token")


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The secret of a token."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(secret_key: str, token_id: str) -> str:
    """The SCRAM password of a token."""
    return b64encode(token_hmac(secret_key, token_id)).decode("ascii")
