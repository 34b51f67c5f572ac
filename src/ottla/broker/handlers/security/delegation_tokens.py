"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken.

What a token is, and who may change it, is in `ottla.security.delegation_token`.
"""

import hmac
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import Final, cast

from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest
from kio.schema.create_delegation_token.v3.response import CreateDelegationTokenResponse
from kio.schema.describe_delegation_token.v3.request import DescribeDelegationTokenRequest
from kio.schema.describe_delegation_token.v3.response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse
from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest
from kio.schema.renew_delegation_token.v2.response import RenewDelegationTokenResponse
from kio.static.primitive import TZAware, i64

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.model.base64_ids import id_text, new_id
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.delegation_token import (
    TokenInfo,
    TokenLifetimes,
    TokenNotFoundError,
    TokenRequestNotAllowedError,
    TokensDisabledError,
    expired,
    new_token,
    renewed,
    token_hmac,
)
from ottla.security.principals import ANONYMOUS, Principal
from ottla.security.resources import Operation, ResourceType
from ottla.security.security_protocol import SecurityProtocol

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final = -1
"""The timestamps of a refused request."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_HMACS_KEPT_MAX: Final = 10_000

_hmac_of = lru_cache(maxsize=_HMACS_KEPT_MAX)(token_hmac)


# CreateDelegationToken


async def create_delegation_token(
    services: Services, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """A new token of the client, or of another user if the client may create tokens for it."""
    requester = context.connection.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    try:
        _check_may_ask(context)
        if owner != requester:
            context.check(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))
        secret_key = _secret_key(services)
        token = new_token(
            id_text(new_id(services.random.randbytes)),
            owner=owner,
            requester=requester,
            renewers=tuple(Principal(each.principal_type, each.principal_name) for each in request.renewers),
            max_ms=request.max_lifetime // _MILLISECOND,
            lifetimes=_lifetimes(services),
            now_ms=services.clock.now_ms(),
        )
        committed = await services.controller.create_token(token)
        await services.wait_revision(committed.revision)
    except OttlaError as error:
        return _created(owner, requester, error=error.code)
    return _created(owner, requester, token=token, secret=token_hmac(secret_key, token.id))


def _created(
    owner: Principal,
    requester: Principal,
    *,
    error: ErrorCode = ErrorCode.NONE,
    token: TokenInfo | None = None,
    secret: bytes = b"",
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=wire_error(error),
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=_instant(_NONE if token is None else token.issued_ms),
        expiry_timestamp=_instant(_NONE if token is None else token.expiry_ms),
        max_timestamp=_instant(_NONE if token is None else token.max_ms),
        token_id="" if token is None else token.id,
        hmac=secret,
        throttle_time=milliseconds(0),
    )


# RenewDelegationToken, ExpireDelegationToken


async def renew_delegation_token(
    services: Services, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Lets a token expire later."""
    code, expiry_ms = ErrorCode.NONE, _NONE
    try:
        _check_may_ask(context)
        token_id = _token_with(services, request.hmac)
        change = partial(
            renewed,
            principal=context.connection.principal,
            period_ms=request.renew_period // _MILLISECOND,
            lifetimes=_lifetimes(services),
            now_ms=services.clock.now_ms(),
        )
        committed = await services.controller.change_token(token_id, change)
        await services.wait_revision(committed.revision)
        (token,) = committed.outcomes
        expiry_ms = _NONE if token is None else token.expiry_ms
    except OttlaError as error:
        code = error.code
    return RenewDelegationTokenResponse(
        error_code=wire_error(code), expiry_timestamp=_instant(expiry_ms), throttle_time=milliseconds(0)
    )


async def expire_delegation_token(
    services: Services, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Lets a token expire earlier; a negative period removes it."""
    code, expiry_ms = ErrorCode.NONE, _NONE
    now_ms = services.clock.now_ms()
    try:
        _check_may_ask(context)
        token_id = _token_with(services, request.hmac)
        change = partial(
            expired,
            principal=context.connection.principal,
            period_ms=request.expiry_time_period // _MILLISECOND,
            now_ms=now_ms,
        )
        committed = await services.controller.change_token(token_id, change)
        await services.wait_revision(committed.revision)
        (token,) = committed.outcomes
        expiry_ms = now_ms if token is None else token.expiry_ms
    except OttlaError as error:
        code = error.code
    return ExpireDelegationTokenResponse(
        error_code=wire_error(code), expiry_timestamp=_instant(expiry_ms), throttle_time=milliseconds(0)
    )


# DescribeDelegationToken


def describe_delegation_token(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """The tokens that the client may see, of all owners with null; with their secrets, as in Kafka."""
    try:
        _check_may_ask(context)
        secret_key = _secret_key(services)
    except OttlaError as error:
        return DescribeDelegationTokenResponse(
            error_code=wire_error(error.code), tokens=(), throttle_time=milliseconds(0)
        )
    owners = None
    if request.owners is not None:
        owners = {Principal(each.principal_type, each.principal_name) for each in request.owners}
    return DescribeDelegationTokenResponse(
        error_code=wire_error(ErrorCode.NONE),
        tokens=tuple(
            DescribedDelegationToken(
                principal_type=token.owner.type,
                principal_name=token.owner.name,
                token_requester_principal_type=token.requester.type,
                token_requester_principal_name=token.requester.name,
                issue_timestamp=i64(token.issued_ms),
                expiry_timestamp=i64(token.expiry_ms),
                max_timestamp=i64(token.max_ms),
                token_id=token.id,
                hmac=_hmac_of(secret_key, token.id),
                renewers=tuple(
                    DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
                    for each in token.renewers
                ),
            )
            for token in _visible(context, services.image.delegation_tokens.values(), owners)
        ),
        throttle_time=milliseconds(0),
    )


def _visible(
    context: RequestContext, tokens: Iterable[TokenInfo], owners: set[Principal] | None
) -> Iterable[TokenInfo]:
    me = context.connection.principal
    for token in tokens:
        if owners is not None and owners.isdisjoint(token.users):
            continue
        if (
            token.may_use(me)
            or context.sees(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
            or context.sees(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
        ):
            yield token


# What they share


def _check_may_ask(context: RequestContext) -> None:
    """Raises TokenRequestNotAllowedError unless the client has authenticated itself, other than by a token."""
    client = context.connection
    is_open = client.security_protocol is SecurityProtocol.PLAINTEXT or client.principal == ANONYMOUS
    if is_open or client.is_token_login:
        raise TokenRequestNotAllowedError(
            "delegation tokens need a connection that is authenticated by a TLS client certificate, or by SASL"
            " without a token"
        )


def _secret_key(services: Services) -> str:
    secret_key = services.config.delegation_token_secret_key
    if not secret_key:
        raise TokensDisabledError("delegation tokens are disabled; set delegation.token.secret.key on all brokers")
    return secret_key


def _lifetimes(services: Services) -> TokenLifetimes:
    config = services.config
    return TokenLifetimes(
        max_ms=config.delegation_token_max_lifetime_ms, renewal_ms=config.delegation_token_expiry_time_ms
    )


def _token_with(services: Services, secret: bytes) -> str:
    """The id of the token with this secret. Raises TokenNotFoundError, TokensDisabledError."""
    secret_key = _secret_key(services)
    for token_id in services.image.delegation_tokens:
        if hmac.compare_digest(_hmac_of(secret_key, token_id), secret):
            return token_id
    raise TokenNotFoundError("there is no delegation token with this HMAC")


def _instant(timestamp_ms: int) -> TZAware:
    return cast("TZAware", _EPOCH + timedelta(milliseconds=timestamp_ms))
