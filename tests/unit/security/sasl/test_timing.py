"""What the time of a login says: for a known and an unknown user the same is computed, and secrets are compared in
constant time. Calls are compared rather than clocks, so that the tests do not depend on the machine."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import FrameType

import pytest

from ottla.broker.logins.scram_users import ScramLookup
from ottla.metadata.image import ClusterImage
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.plain import PlainLogin
from ottla.security.sasl.scram import ScramLogin
from ottla.security.scram_credential import ScramMechanism, make_credential

NOW_MS = 1_000_000
_LIBRARIES = frozenset({"_hashlib", "_operator", "_sha256", "_sha512", "_sha3", "_blake2"})


def computed(act: Callable[[], object]) -> list[str]:
    """The functions of cryptographic libraries that are called, in their order; the login may be refused."""
    calls: list[str] = []

    def on_event(frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and getattr(called, "__module__", None) in _LIBRARIES:
            calls.append(str(getattr(called, "__name__", called)))

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        with suppress(AuthenticationError):
            act()
    finally:
        sys.setprofile(before)
    return calls


def scram(mechanism: ScramMechanism) -> ScramLogin:
    alice = make_credential(mechanism, "secret", salt=b"the salt of twenty-six byte", iterations=4096)
    bob = make_credential(mechanism, "secret", salt=b"salt", iterations=8192)
    users = {(mechanism, "alice"): alice, (mechanism, "bob"): bob}
    image = replace(ClusterImage(), scram_credentials=users, login_secret=b"secret")
    return ScramLogin(mechanism, ScramLookup(mechanism, lambda: image, lambda: "key").find, new_nonce=lambda: "broker")


def attempt(mechanism: ScramMechanism, name: str, extension: str = "") -> tuple[list[str], list[str]]:
    """What is computed for the first message, and for a proof that is wrong."""
    login = scram(mechanism)
    first = computed(lambda: login.step(f"n,,n={name},r=client{extension}".encode(), NOW_MS))
    proof = "A" * (43 if mechanism is ScramMechanism.SHA_256 else 86)
    padding = "=" * (-len(proof) % 4)
    return first, computed(lambda: login.step(f"c=biws,r=clientbroker,p={proof}{padding}".encode(), NOW_MS))


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_computes_the_same_for_known_and_unknown_users(mechanism: ScramMechanism) -> None:
    known = attempt(mechanism, "alice")
    assert known == attempt(mechanism, "mallory") == attempt(mechanism, "mallory", ",tokenauth=true")
    assert all(known), "something is computed for either message"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_scram_compares_nonce_and_proof_in_constant_time(mechanism: ScramMechanism) -> None:
    assert 2 == attempt(mechanism, "alice")[1].count("compare_digest")
    login = scram(mechanism)
    login.step(b"n,,n=alice,r=client", NOW_MS)
    other_nonce = computed(lambda: login.step(b"c=biws,r=clientbrokes,p=AAAA", NOW_MS))
    assert ["compare_digest"] == other_nonce


def test_plain_computes_the_same_for_known_and_unknown_users() -> None:
    def tried(name: str, password: str) -> list[str]:
        return computed(lambda: PlainLogin({"alice": "secret"}).step(f"\0{name}\0{password}".encode(), NOW_MS))

    known = tried("alice", "wrong!")
    assert known == tried("mallory", "wrong!") == tried("alice", "secre") == tried("alice", "a much longer password")
    assert "compare_digest" in known
