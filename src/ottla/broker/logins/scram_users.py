"""The users and delegation tokens that log in with SCRAM, found in the newest image of the cluster."""

import hmac
from collections.abc import Callable, Mapping

from ottla.metadata.image import ClusterImage
from ottla.security.delegation_token import token_password
from ottla.security.principals import USER_TYPE, Principal
from ottla.security.sasl.broker_mechanism import Identity
from ottla.security.sasl.scram import KnownUser, ScramUsers, decoy_credential
from ottla.security.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    make_credential,
)

_TOKENS_KEPT_MAX = 10_000


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
        """The users among which the models were chosen."""
        self._models: list[ScramCredential] = []
        """One for each length of salts and number of iterations that users have."""
        self._decoy_secret = b""

    def users(self) -> ScramUsers:
        """For the machines of `ottla.security.sasl.scram`."""
        return ScramUsers(self.find_user, self.find_token, self.decoy)

    def find_user(self, name: str) -> KnownUser | None:
        """The user with this name."""
        credential = self._image().scram_credentials.get((self._mechanism, name))
        if credential is None:
            return None
        return KnownUser(credential, Identity(Principal(USER_TYPE, name)))

    def find_token(self, token_id: str, now_ms: int) -> KnownUser | None:
        """The delegation token with this id, unless it has expired. A login with it is its owner's."""
        token, secret_key = self._image().delegation_tokens.get(token_id), self._secret_key()
        if token is None or not secret_key or token.is_expired(now_ms):
            return None
        credential = self._token_credentials.get((secret_key, token_id))
        if credential is None:
            if len(self._token_credentials) >= _TOKENS_KEPT_MAX:
                self._token_credentials.clear()
            salt = self.decoy(token_id).salt
            password = token_password(secret_key, token_id)
            credential = make_credential(self._mechanism, password, salt=salt, iterations=ITERATIONS_MIN)
            self._token_credentials[secret_key, token_id] = credential
        return KnownUser(credential, Identity(token.owner, expires_ms=token.expiry_ms, is_token_login=True))

    def decoy(self, name: str) -> ScramCredential:
        """A credential for an unknown name: the same on all brokers, and after a restart."""
        users = self._image().scram_credentials
        if users is not self._seen:
            self._seen = users
            self._choose_models(users)
        return decoy_credential(self._mechanism, name, secret=self._decoy_secret, like=self._model_of(name))

    def _model_of(self, name: str) -> ScramCredential | None:
        """If users differ, decoys do as well, or what differs from all decoys would be a user. Always the same for a
        name."""
        if len(self._models) < 2:
            return self._models[0] if self._models else None
        drawn = hmac.digest(self._decoy_secret, f"model\0{name}".encode(), "sha256")
        return self._models[int.from_bytes(drawn[:8], "big") % len(self._models)]

    def _choose_models(self, users: Mapping[tuple[ScramMechanism, str], ScramCredential]) -> None:
        """The key of the first user, which all brokers know and no client, makes decoys unpredictable; without users
        there is nothing to hide."""
        own = {name: credential for (mechanism, name), credential in users.items() if mechanism is self._mechanism}
        shapes = {(len(each.salt), each.iterations): each for each in own.values()}
        self._models = [shapes[shape] for shape in sorted(shapes)]
        self._decoy_secret = own[min(own)].server_key if own else b"no users"
