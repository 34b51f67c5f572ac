"""Builds what listeners with SASL accept: a `ListenerLogin` for each, and the keys that must be kept fresh."""

import secrets
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.configs.sasl_config import JwksConfig, SaslConfig
from ottla.broker.logins.scram_users import ScramLookup
from ottla.env.ports import Clock
from ottla.metadata.image import ClusterImage
from ottla.model.ids import BrokerId
from ottla.security.connection_context import ClientSoftware
from ottla.security.sasl.broker_mechanism import BrokerMechanism
from ottla.security.sasl.jwt_validation import BadTokenError, VerifiedToken, verify_unsecured
from ottla.security.sasl.oauthbearer import OAuthBearerLogin
from ottla.security.sasl.plain import PlainLogin
from ottla.security.sasl.scram import ScramLogin
from ottla.security.sasl.session import LoginRules
from ottla.security.scram_credential import ScramMechanism
from ottla.transport.authentication import ListenerLogin

if TYPE_CHECKING:
    from ottla.broker.logins.jwks import Jwks

_NONCE_BYTES = 24


def new_nonce() -> str:
    """A random text for one SCRAM login."""
    return secrets.token_urlsafe(_NONCE_BYTES)


class BrokerLogins:
    """The logins of all listeners of a broker. `secret_key` is delegation.token.secret.key."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        clock: Clock,
        secret_key: Callable[[], str | None],
        *,
        broker_id: BrokerId,
        with_telemetry: bool = False,
    ) -> None:
        self._clock = clock
        self._image = image
        self._broker_id = broker_id
        self._with_telemetry = with_telemetry
        self._scram = {each: ScramLookup(each, image, secret_key) for each in ScramMechanism}
        self._jwks: dict[JwksConfig, Jwks] = {}

    def login_for(self, config: SaslConfig) -> ListenerLogin:
        """What a listener with these configs accepts. Raises `InvalidConfigError`."""
        return ListenerLogin(
            rules=LoginRules(
                mechanisms={each: self._maker(each, config) for each in config.mechanisms},
                reauthentication_ms_max=config.reauthentication_ms_max,
            ),
            answer_api_versions=self._answer_api_versions,
            frame_bytes_max=config.frame_bytes_max,
            failure_delay_ms=config.failure_delay_ms,
        )

    def background_tasks(self) -> list[Coroutine[None, None, None]]:
        """What must run as long as the listeners are open: fetches of keys."""
        return [each.fetch_forever() for each in self._jwks.values()]

    async def wait_keys(self) -> None:
        """Waits for the first fetch of all keys, by the background tasks: a client that logs in just after the start
        is not refused because a file was not read yet."""
        for each in self._jwks.values():
            await each.wait_tried()

    def _maker(self, mechanism: str, config: SaslConfig) -> Callable[[], BrokerMechanism]:
        match mechanism:
            case "PLAIN":
                return partial(PlainLogin, config.passwords)
            case "OAUTHBEARER":
                return partial(OAuthBearerLogin, self._verifier(config))
        scram = ScramMechanism(mechanism)
        return partial(ScramLogin, scram, self._scram[scram].find, new_nonce=new_nonce)

    def _answer_api_versions(
        self, version: int, correlation_id: int, body: memoryview, software: ClientSoftware
    ) -> bytes:
        # Imported at the first login: kio takes its time.
        from ottla.broker.handlers.versions import answer_api_versions

        return answer_api_versions(
            version,
            correlation_id,
            body,
            self._image(),
            self._broker_id,
            software,
            with_telemetry=self._with_telemetry,
        )

    def _verifier(self, config: SaslConfig) -> Callable[[str, int], VerifiedToken]:
        rules = config.token_rules
        if config.accepts_unsecured_tokens:
            return lambda token, now_ms: verify_unsecured(token, rules, now_ms)
        if config.jwks is None:
            return _refuse
        # Imported only where tokens are accepted: an HTTP client takes its time.
        from ottla.broker.logins.jwks import Jwks

        jwks = self._jwks.get(config.jwks)
        if jwks is None:
            jwks = self._jwks[config.jwks] = Jwks(config.jwks, self._clock)
        return lambda token, now_ms: jwks.verify(token, rules, now_ms)


def _refuse(token: str, now_ms: int) -> VerifiedToken:
    raise BadTokenError("the broker has no keys to check tokens with")
