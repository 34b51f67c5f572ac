"""Tokens: only a signature with a key of the set counts, and every claim that is expected is checked."""

import base64
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from ottla.model.errors import InvalidRequestError
from ottla.security.sasl.jwt_validation import (
    BadTokenError,
    TokenRules,
    UnknownKeyError,
    VerifiedToken,
    read_keys,
    verify_token,
    verify_unsecured,
)

NOW = 1_700_000_000
RULES = TokenRules(audiences=("kafka", "other"), issuer="https://issuer")
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
RSA_2 = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
KEYS = read_keys(json.dumps({"keys": [key.as_dict(private=False) for key in (RSA, EC, ED)]}))
CLAIMS = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": NOW, "exp": NOW + 60}


def claims(**changed: Any) -> bytes:
    merged = {**CLAIMS, **changed}
    return json.dumps({name: value for name, value in merged.items() if value is not None}).encode()


def signed(key: Any = RSA, header: dict[str, Any] | None = None, **changed: Any) -> str:
    protected = header or {"alg": "RS256", "kid": key.get("kid")}
    return jws.serialize_compact(protected, claims(**changed), key, algorithms=[protected["alg"]])


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unsigned(header: dict[str, Any], **changed: Any) -> str:
    return f"{encoded(json.dumps(header).encode())}.{encoded(claims(**changed))}."


@pytest.mark.parametrize(
    ("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256"), (ED, "EdDSA"), (RSA, "RS384")]
)
def test_signed_tokens(key: Any, algorithm: str) -> None:
    token = signed(key, {"alg": algorithm, "kid": key.get("kid")})

    assert VerifiedToken("alice", (NOW + 60) * 1000, frozenset()) == verify_token(token, KEYS, RULES, NOW * 1000)


def test_a_token_without_a_key_id_is_checked_with_all_keys_of_its_type() -> None:
    assert "alice" == verify_token(signed(RSA, {"alg": "RS256"}), KEYS, RULES, NOW * 1000).name
    with pytest.raises(BadTokenError, match="signature is wrong"):
        verify_token(signed(RSA_2, {"alg": "RS256"}), KEYS, RULES, NOW * 1000)


def test_any_jwt_is_not_accepted_by_default() -> None:
    """Kafka's default validator accepts tokens without a signature."""
    for token in (unsigned({"alg": "none"}), signed(RSA_2)):
        with pytest.raises(BadTokenError):
            verify_token(token, KEYS, TokenRules(), NOW * 1000)


@pytest.mark.parametrize("keys", [None, read_keys(json.dumps({"keys": [EC.as_dict(private=False)]}))])
def test_the_signature_check_is_not_skipped_without_keys(keys: Any) -> None:
    for token in (signed(), unsigned({"alg": "none"}), unsigned({"alg": "RS256"})):
        with pytest.raises(BadTokenError):
            verify_token(token, keys, TokenRules(), NOW * 1000)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None, 0, ["RS256"], "RS1", "HS256", "dir"])
def test_alg_none_and_its_like_are_refused(algorithm: Any) -> None:
    with pytest.raises(BadTokenError, match="algorithm"):
        verify_token(unsigned({"alg": algorithm, "kid": "rsa"}), KEYS, RULES, NOW * 1000)


def test_a_public_key_is_not_taken_for_an_hmac_secret() -> None:
    """The attack that turns RS256 into HS256."""
    signed_part = unsigned({"alg": "HS256", "kid": "rsa"}).removesuffix(".")
    signature = hmac.digest(RSA.as_pem(private=False), signed_part.encode(), "sha256")

    with pytest.raises(BadTokenError, match="algorithm"):
        verify_token(f"{signed_part}.{encoded(signature)}", KEYS, RULES, NOW * 1000)


def test_a_symmetric_key_in_the_set_is_not_used() -> None:
    secret = OctKey.generate_key(256, {"kid": "oct"})

    with pytest.raises(InvalidRequestError, match="no usable public key"):
        read_keys(json.dumps({"keys": [secret.as_dict(private=True)]}))


def test_a_key_in_the_token_is_not_trusted() -> None:
    """`jwk`, `jku` and `x5c` of the header are the sender's, not the issuer's."""
    public = RSA_2.as_dict(private=False)
    for header in (
        {"alg": "RS256", "jwk": public},
        {"alg": "RS256", "kid": "rsa", "jku": "https://mallory/jwks"},
        {"alg": "RS256", "kid": "rsa", "jwk": public},
    ):
        token = jws.serialize_compact(header, claims(), RSA_2, algorithms=["RS256"])
        with pytest.raises(BadTokenError):
            verify_token(token, KEYS, RULES, NOW * 1000)


def test_an_unknown_key_id_is_told() -> None:
    with pytest.raises(UnknownKeyError):
        verify_token(signed(RSA, {"alg": "RS256", "kid": "new"}), KEYS, RULES, NOW * 1000)


def test_a_key_of_another_use_or_algorithm_is_not_used() -> None:
    for extra in ({"use": "enc"}, {"alg": "RS512"}):
        keys = read_keys(json.dumps({"keys": [{**RSA.as_dict(private=False), **extra}]}))
        with pytest.raises(UnknownKeyError):
            verify_token(signed(), keys, RULES, NOW * 1000)


def test_a_changed_claim_breaks_the_signature() -> None:
    header, _, signature = signed().split(".")

    with pytest.raises(BadTokenError, match="signature is wrong"):
        verify_token(f"{header}.{encoded(claims(sub='admin'))}.{signature}", KEYS, RULES, NOW * 1000)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"exp": None}, "exp"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": "tomorrow"}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": 1e300}, "not a time"),
        ({"exp": float("nan")}, "not a time"),
        ({"nbf": NOW + 31}, "not valid yet"),
        ({"iat": NOW + 31}, "not valid yet"),
        ({"iss": None}, "issuer"),
        ({"iss": "https://issuer/"}, "issuer"),
        ({"iss": ["https://issuer"]}, "issuer"),
        ({"aud": None}, "audience"),
        ({"aud": "kafka2"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [{"kafka": 1}]}, "audience"),
        ({"sub": None}, "principal"),
        ({"sub": " "}, "principal"),
        ({"sub": " alice"}, "spaces"),
        ({"sub": "alice "}, "spaces"),
        ({"sub": "\u3000alice"}, "principal"),
        ({"sub": "alice\nINFO logged in"}, "principal"),
        ({"sub": ["alice"]}, "principal"),
    ],
)
def test_claims_are_checked(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadTokenError, match=complaint):
        verify_token(signed(**changed), KEYS, RULES, NOW * 1000)


@pytest.mark.parametrize(
    "changed", [{"exp": NOW - 29}, {"nbf": NOW + 30}, {"iat": NOW + 30}, {"aud": ["x", "other"]}, {"iat": None}]
)
def test_clocks_may_differ_and_one_audience_is_enough(changed: dict[str, Any]) -> None:
    assert "alice" == verify_token(signed(**changed), KEYS, RULES, NOW * 1000).name


def test_other_claims_may_have_name_and_scope() -> None:
    rules = TokenRules(name_claim="client_id", scope_claim="scp")
    token = signed(client_id="app", scp=["read", "write"])

    assert ("app", {"read", "write"}) == (
        (found := verify_token(token, KEYS, rules, NOW * 1000)).name,
        set(found.scopes),
    )


@pytest.mark.parametrize("token", ["", ".", "..", "a.b", "a.b.c", "....", "e30.e30.", "[].[].x", "x" * 100_000])
def test_what_is_not_a_token(token: str) -> None:
    with pytest.raises(BadTokenError):
        verify_token(token, KEYS, RULES, 0)
    with pytest.raises(BadTokenError):
        verify_unsecured(token, RULES, 0)


def test_deep_json_is_refused() -> None:
    deep = encoded(b'{"a":' * 20_000 + b"1" + b"}" * 20_000)
    with pytest.raises(BadTokenError):
        verify_token(f"{deep}.e30.x"[:60_000], KEYS, RULES, 0)


class TestUnsecured:
    """Only where it is configured: tokens that anyone can write."""

    def test_a_token_without_a_signature(self) -> None:
        assert "alice" == verify_unsecured(unsigned({"alg": "none"}), RULES, NOW * 1000).name

    def test_its_claims_are_checked(self) -> None:
        with pytest.raises(BadTokenError, match="expired"):
            verify_unsecured(unsigned({"alg": "none"}, exp=NOW - 100), RULES, NOW * 1000)

    def test_a_signed_token_is_refused_since_its_signature_is_not_checked(self) -> None:
        for token in (signed(), unsigned({"alg": "none"}) + "c2ln", unsigned({"alg": "RS256"})):
            with pytest.raises(BadTokenError, match="unsecured"):
                verify_unsecured(token, RULES, NOW * 1000)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": {}}', '{"keys": []}', '{"keys": [1]}', "{" * 5000])
def test_what_is_not_a_key_set(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        read_keys(text)


def test_short_rsa_keys_are_not_used() -> None:
    """They can be broken, and then anyone can sign tokens."""
    short = RSAKey.import_key(generate_private_key(65537, 1024)).as_dict(private=False)
    with pytest.raises(InvalidRequestError, match="at least 2048 bits"):
        read_keys(json.dumps({"keys": [short]}))
    assert 1 == len(read_keys(json.dumps({"keys": [short, RSA.as_dict(private=False)]})))
