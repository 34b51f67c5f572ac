"""The users and delegation tokens that log in with SCRAM, found in the newest image of the cluster.

A client cannot find out which users exist. The salt and the iterations of a name are the user's, or a decoy's, also for
a login with a delegation token. Decoys come from a random secret in the metadata store: they are the same on all
brokers, stay the same as users come and go, and no client can compute them.
"""

import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Mapping

from ottla.metadata.image import ClusterImage
from ottla.security.delegation_token import token_password
from ottla.security.principals import USER_TYPE, Principal
from ottla.security.sasl.broker_mechanism import Identity
from ottla.security.sasl.scram import FoundLogin
from ottla.security.sasl.scram_decoys import USUAL_SHAPE, CredentialShape, decoy_credential
from ottla.security.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    make_credential,
)

_TOKENS_KEPT_MAX = 10_000
_SHAPES_MAX = 50
"""Of all shapes that credentials of users have; each takes a microsecond for each login."""


class ScramLookup:
    """Finds users of one mechanism. `secret_key` is delegation.token.secret.key; without it no token is accepted."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        image: Callable[[], ClusterImage],
        secret_key: Callable[[], str | None],
    ) -> None:
        self._mechanism = mechanism
        self._image = image
        self._secret_key = secret_key
        self._token_credentials: dict[tuple[str, str], ScramCredential] = {}
        """By secret key and token id; each takes milliseconds to compute."""
        self._seen: Mapping[tuple[ScramMechanism, str], ScramCredential] | None = None
        """The users whose shapes these are."""
        self._shapes: list[CredentialShape] = []
        """The most frequent ones."""
        self._own_secret = secrets.token_bytes(32)
        """For a metadata store that has none."""

    def find(self, name: str, is_token: bool, now_ms: int) -> FoundLogin:
        """The user with this name, or the delegation token with this id, or a decoy."""
        # Always computed, so that known and unknown users take the same time.
        decoy = self._decoy(name)
        user = self._image().scram_credentials.get((self._mechanism, name))
        if user is not None and user.iterations < ITERATIONS_MIN:
            user = None  # Clients refuse them.
        if is_token:
            return self._token(name, user or decoy, now_ms)
        return FoundLogin(user or decoy, Identity(Principal(USER_TYPE, name)) if user is not None else None)

    def _token(self, token_id: str, shown: ScramCredential, now_ms: int) -> FoundLogin:
        """A delegation token, with the salt and the iterations of `shown`. A login with it is its owner's."""
        token, secret_key = self._image().delegation_tokens.get(token_id), self._secret_key()
        if token is None or not secret_key or token.is_expired(now_ms):
            return FoundLogin(shown, None)
        credential = self._token_credentials.get((secret_key, token_id))
        if credential is None or (credential.salt, credential.iterations) != (shown.salt, shown.iterations):
            if len(self._token_credentials) >= _TOKENS_KEPT_MAX:
                self._token_credentials.clear()
            password = token_password(secret_key, token_id)
            credential = make_credential(self._mechanism, password, salt=shown.salt, iterations=shown.iterations)
            self._token_credentials[secret_key, token_id] = credential
        return FoundLogin(credential, Identity(token.owner, expires_ms=token.expiry_ms, is_token_login=True))

    def _decoy(self, name: str) -> ScramCredential:
        """A credential for an unknown name: the same on all brokers, and after a restart."""
        image = self._image()
        if image.scram_credentials is not self._seen:
            self._seen = image.scram_credentials
            counts = Counter(
                CredentialShape.of(each)
                for (mechanism, _), each in image.scram_credentials.items()
                if mechanism is self._mechanism and each.iterations >= ITERATIONS_MIN
            )
            self._shapes = [shape for shape, _ in counts.most_common(_SHAPES_MAX)]
        secret = image.login_secret or self._own_secret
        return decoy_credential(self._mechanism, name, secret=secret, shape=self._shape_of(name, secret))

    def _shape_of(self, name: str, secret: bytes) -> CredentialShape:
        """If users differ, decoys do as well, or what differs from all decoys would be a user. With a new shape, only
        the decoys that take it change."""

        def weight(shape: CredentialShape) -> bytes:
            return hmac.digest(secret, f"shape\0{tuple(shape)}\0{name}".encode(), "sha256")

        return max(self._shapes, key=weight, default=USUAL_SHAPE)
