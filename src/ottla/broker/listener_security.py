"""The TLS of a broker's listeners, and how the broker connects to the inter-broker listener of others.

Certificates are replaced when files or dynamic configs change, without a restart. One listener's certificates are
`ottla.transport.listener_tls`; what the configs mean is in `configs/listener_config.py`.
"""

import logging
from collections.abc import Coroutine
from typing import Final

from ottla.broker.configs.configuration import BrokerConfig
from ottla.broker.configs.listener_config import ListenerConfig, listener_tls_settings
from ottla.broker.logins.inter_broker_login import InterBrokerLogin, inter_broker_login
from ottla.env.ports import Clock
from ottla.model.errors import InvalidConfigError, InvalidRequestError
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.transport.client_security import ClientSecurity
from ottla.transport.listener_tls import ListenerTls

_LOGGER: Final = logging.getLogger(__name__)
FILES_CHECKED_SECONDS: Final = 2.0
"""How often certificate files are looked at; a changed one is used after two looks that found the same."""


class ListenerSecurity:
    """The certificates of all listeners with TLS. Raises `InvalidConfigError` if one of them cannot be used."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._inter_broker: Final = _listener(config, config.inter_broker_listener)
        self._tls: Final = {
            each.name: ListenerTls(
                each.name,
                listener_tls_settings(config.values, each.name, each.security_protocol),
                is_inter_broker=each.name == self._inter_broker.name,
            )
            for each in config.listeners
            if each.security_protocol.is_encrypted
        }
        self._login: InterBrokerLogin | None = None
        self._no_login = ""
        """Why there is none, on a listener that needs one."""
        if self._inter_broker.security_protocol.has_login:
            try:
                self._login = inter_broker_login(config, self._inter_broker.name, clock)
            except AuthenticationError as error:
                # A cluster of one broker does not need it.
                self._no_login = str(error)
                _LOGGER.warning("this broker cannot log in to other brokers: %s", error)

    def tls_of(self, listener: str) -> ListenerTls | None:
        """The certificates of a listener; None if it does not use TLS."""
        return self._tls.get(listener)

    def inter_broker(self) -> ClientSecurity | None:
        """How to connect to another broker now; None without TLS and login. Raises `AuthenticationError`."""
        name, protocol = self._inter_broker.name, self._inter_broker.security_protocol
        if not protocol.is_encrypted and not protocol.has_login:
            return None
        if self._no_login:
            raise AuthenticationError(self._no_login)
        return ClientSecurity(
            security_protocol=protocol,
            ssl_context=self._tls[name].client_context if protocol.is_encrypted else None,
            sasl=self._login.make if self._login is not None else None,
        )

    def background_tasks(self) -> list[Coroutine[None, None, None]]:
        """What must run as long as the broker does, besides `reload_forever`: tokens that are renewed."""
        login = self._login
        return [login.renew_forever()] if login is not None and login.renew_forever is not None else []

    def check(self, config: BrokerConfig) -> None:
        """Raises `InvalidRequestError` if the certificates of this configuration could not replace the present
        ones."""
        for name, tls in self._tls.items():
            try:
                tls.check(listener_tls_settings(config.values, name, _listener(config, name).security_protocol))
            except InvalidConfigError as error:
                raise InvalidRequestError(str(error)) from None

    def apply(self, config: BrokerConfig) -> None:
        """Takes a changed configuration. Certificates that cannot be used are reported, and the old ones stay."""
        for name, tls in self._tls.items():
            try:
                tls.replace(listener_tls_settings(config.values, name, _listener(config, name).security_protocol))
            except InvalidConfigError as error:
                _LOGGER.error("listener %s: cannot use the changed certificates, keeping the old ones: %s", name, error)

    async def reload_forever(self, clock: Clock) -> None:
        """Uses changed certificate files, until cancelled."""
        while self._tls:
            await clock.sleep(FILES_CHECKED_SECONDS)
            for tls in self._tls.values():
                tls.reload_if_changed()


def _listener(config: BrokerConfig, name: str) -> ListenerConfig:
    return next(each for each in config.listeners if each.name == name)
