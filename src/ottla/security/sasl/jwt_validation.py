"""Checks JSON Web Tokens against a set of public keys, at a given time. Pure.

Only asymmetric signatures are accepted: `none` never is, and neither is HMAC, where a public key could be taken for a
secret. Unsecured tokens have a function of their own, for brokers whose configuration asks for it. Fetching the
keys is `ottla.broker.logins.jwks`'s.
"""

import base64
import binascii
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.model.errors import InvalidRequestError, OttlaError

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
"""The signatures that are accepted, whatever a token or a key says."""
_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_KEYS_MAX: Final = 100
_RSA_BITS_MIN: Final = 2048
"""Shorter keys can be broken (RFC 7518, 3.3)."""
_TOKEN_CHARACTERS_MAX: Final = 64 * 1024
_TIME_MAX: Final = 2**43
"""In seconds; a later time is not a time."""


class BadTokenError(OttlaError):
    """The token is not accepted. The message never contains the token."""


class UnknownKeyError(BadTokenError):
    """The token names a key that is not in the set: it may have been published since the set was fetched."""


class WrongSignatureError(BadTokenError):
    """No key of the set made the signature: keys without ids may have been replaced since the set was fetched."""


class TokenTimeError(BadTokenError):
    """The token has expired or is not valid yet, by the clock of this machine."""


class VerifiedToken(NamedTuple):
    """A token whose signature and claims are right."""

    name: str
    """The principal's name."""
    expires_ms: int
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must contain."""

    audiences: tuple[str, ...] = ()
    """One of them must be the token's; empty if the audience is not checked."""
    issuer: str | None = None
    """None if the issuer is not checked."""
    clock_skew_seconds: int = 30
    name_claim: str = "sub"
    scope_claim: str = "scope"
    issuer_config: str = "sasl.oauthbearer.expected.issuer"
    """The name of the issuer's config in errors; the same of the audience's."""
    audience_config: str = "sasl.oauthbearer.expected.audience"


class TokenKeys:
    """Public keys by their ids; make one with `read_keys`."""

    __slots__ = ("_keys",)

    def __init__(self, keys: list[Any]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def candidates(self, key_id: object, algorithm: str) -> list[Any]:
        """The keys that may have signed. A token with a key id is checked with that key only."""
        key_type = _KEY_TYPES[algorithm[:2]]
        fitting = [
            key
            for key in self._keys
            if key.key_type == key_type and key.get("use", "sig") == "sig" and key.get("alg", algorithm) == algorithm
        ]
        if key_id is None:
            return fitting
        named = [key for key in fitting if key.get("kid") == key_id]
        if not named:
            raise UnknownKeyError("the token is signed with a key that is not in the JWKS")
        return named


def read_keys(text: str | bytes) -> TokenKeys:
    """The usable public keys of a JWKS. Raises `InvalidRequestError` if there are none."""
    from joserfc.errors import JoseError
    from joserfc.jwk import RSAKey, import_key

    try:
        listed = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidRequestError('it is not a JWKS: JSON with a list "keys"') from None
    if not isinstance(listed, list) or len(listed) > _KEYS_MAX:
        raise InvalidRequestError(f'it is not a JWKS: "keys" must be a list of at most {_KEYS_MAX} keys')
    keys = []
    for entry in listed:
        # Keys of other types and uses may be in the same set: they are of no interest here.
        if not isinstance(entry, dict) or entry.get("kty") not in _KEY_TYPES.values():
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                key = import_key(entry)
                if not isinstance(key, RSAKey) or key.public_key.key_size >= _RSA_BITS_MIN:
                    keys.append(key)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    if not keys:
        raise InvalidRequestError(f"it contains no usable public key (RSA of at least {_RSA_BITS_MIN} bits, EC or OKP)")
    return TokenKeys(keys)


def verify_token(token: str, keys: TokenKeys | None, rules: TokenRules, now_ms: int) -> VerifiedToken:
    """Raises `BadTokenError`. Without keys no token is accepted."""
    return _checked(_signed_claims(token, keys), rules, now_ms)


def verified_claims(token: str, keys: TokenKeys | None, rules: TokenRules, now_ms: int) -> Mapping[str, Any]:
    """All claims of a token that `verify_token` accepts. Raises `BadTokenError`."""
    claims = _signed_claims(token, keys)
    _checked(claims, rules, now_ms)
    return claims


def _signed_claims(token: str, keys: TokenKeys | None) -> dict[str, Any]:
    if keys is None or not len(keys):
        raise BadTokenError("there are no keys to check tokens with")
    header, payload, _ = _parts(token)
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise BadTokenError("the token's signature algorithm is not accepted")
    if "crit" in header or "b64" in header:
        raise BadTokenError("the token needs an extension that is not supported")
    if not any(_is_signed(token, key, algorithm) for key in keys.candidates(header.get("kid"), algorithm)):
        raise WrongSignatureError("the token's signature is wrong")
    return payload


def verify_unsecured(token: str, rules: TokenRules, now_ms: int) -> VerifiedToken:
    """The same for a token without a signature, which anyone can write: only for tests and trusted networks."""
    header, payload, signature = _parts(token)
    if header.get("alg") != "none" or signature:
        raise BadTokenError("this listener accepts unsecured tokens only (alg=none, no signature)")
    return _checked(payload, rules, now_ms)


def _is_signed(token: str, key: Any, algorithm: str) -> bool:
    from joserfc.errors import JoseError
    from joserfc.jws import deserialize_compact

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            deserialize_compact(token, key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError):
        return False
    return True


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _TOKEN_CHARACTERS_MAX:
        raise BadTokenError("it is not a JSON Web Token")
    return _json(parts[0]), _json(parts[1]), parts[2]


def _json(part: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadTokenError("it is not a JSON Web Token")
    return found


def _checked(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> VerifiedToken:
    skew_ms = 1000 * rules.clock_skew_seconds
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise BadTokenError("the token has no expiry time (exp)")
    if now_ms >= expires_ms + skew_ms:
        raise TokenTimeError("the token has expired")
    for claim in ("nbf", "iat"):
        begins_ms = _time_ms(claims, claim)
        if begins_ms is not None and now_ms < begins_ms - skew_ms:
            raise TokenTimeError(f"the token is not valid yet ({claim})")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise BadTokenError(f"the token is from another issuer than {rules.issuer_config}")
    if rules.audiences:
        audience = claims.get("aud")
        listed = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(each, str) and each in rules.audiences for each in listed):
            raise BadTokenError(f"the token is for another audience than {rules.audience_config}")
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise BadTokenError(f"the token has no principal ({rules.name_claim})")
    if name != name.strip():
        # Without them it would be the name of another user of the identity provider.
        raise BadTokenError(f"the token's principal ({rules.name_claim}) begins or ends with spaces")
    return VerifiedToken(name, expires_ms, _scopes(claims.get(rules.scope_claim)))


def _time_ms(claims: Mapping[str, Any], claim: str) -> int | None:
    seconds = claims.get(claim)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _TIME_MAX:
        raise BadTokenError(f"the token's claim {claim} is not a time")
    return int(seconds * 1000)


def _scopes(claim: object) -> frozenset[str]:
    listed = claim.split() if isinstance(claim, str) else claim
    if not isinstance(listed, list):
        return frozenset()
    return frozenset(each for each in listed if isinstance(each, str))
