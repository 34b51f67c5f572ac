"""Delegation tokens: the limits of what one of them may hold."""

import pytest

from ottla.security.delegation_token import (
    RENEWERS_MAX,
    TokenInfo,
    TokenLifetimes,
    TokenRequestNotAllowedError,
    new_token,
)
from ottla.security.principals import Principal

ALICE = Principal("User", "alice")


def made(*renewers: Principal, owner: Principal = ALICE) -> TokenInfo:
    lifetimes = TokenLifetimes(max_ms=1000, renewal_ms=100)
    return new_token("id", owner=owner, requester=ALICE, renewers=renewers, max_ms=-1, lifetimes=lifetimes, now_ms=0)


def test_a_token_has_few_renewers_with_short_names() -> None:
    assert RENEWERS_MAX == len(made(*[ALICE] * RENEWERS_MAX).renewers)
    with pytest.raises(TokenRequestNotAllowedError):
        made(*[ALICE] * (RENEWERS_MAX + 1))
    for renewers, owner in (((Principal("User", "x" * 1001),), ALICE), ((), Principal("User", "x" * 1001))):
        with pytest.raises(TokenRequestNotAllowedError):
            made(*renewers, owner=owner)
