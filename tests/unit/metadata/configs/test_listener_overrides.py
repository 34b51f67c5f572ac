"""Configs with the prefix of a listener."""

import pytest

from ottla.metadata.configs.definition import ConfigType, UpdateMode
from ottla.metadata.configs.listener_overrides import (
    definition_of,
    is_only_per_listener,
    override_name,
    value_for_listener,
)


def test_override_has_the_type_of_what_it_overrides() -> None:
    found = definition_of("listener.name.internal.ssl.keystore.password")
    assert found is not None
    assert (ConfigType.PASSWORD, True) == (found.type, found.is_sensitive)
    assert found.update_mode is UpdateMode.PER_BROKER
    assert found.default is None
    client_auth = definition_of("listener.name.internal.ssl.client.auth")
    assert client_auth is not None
    assert client_auth.update_mode is UpdateMode.AT_START


@pytest.mark.parametrize(
    "name",
    [
        "listener.name.internal.log.dirs",
        "listener.name.internal.ssl.keystore.pasword",
        "listener.name.INTERNAL.ssl.keystore.location",
        "listener.name..ssl.keystore.location",
        "listener.name.internal.plain.ssl.keystore.location",
        "listener.name.internal.plain.sasl.enabled.mechanisms",
        "listener.name.internal.plain.sasl.server.max.receive.size",
        "listener.name.internal.plain.sasl.oauthbearer.expected.audience",
        "listener.name.internal.max.connections",
        "listener.name.internal.max.connection.creation.rate",
        "listener.name.ssl.keystore.location",
    ],
)
def test_other_names_do_not_exist(name: str) -> None:
    assert definition_of(name) is None


def test_closest_value_counts() -> None:
    values = {
        "ssl.client.auth": "none",
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.internal.scram-sha-256.ssl.client.auth": "requested",
    }
    assert value_for_listener(values, "INTERNAL", "ssl.client.auth") == "required"
    assert value_for_listener(values, "OTHER", "ssl.client.auth") == "none"
    assert value_for_listener(values, "INTERNAL", "ssl.client.auth", mechanism="SCRAM-SHA-256") == "requested"
    assert value_for_listener(values, "INTERNAL", "ssl.client.auth", mechanism="PLAIN") == "required"
    assert value_for_listener(values, "INTERNAL", "ssl.provider") is None
    assert override_name("INTERNAL", "sasl.jaas.config", "PLAIN") == "listener.name.internal.plain.sasl.jaas.config"


def test_certificates_change_only_with_a_prefix() -> None:
    assert is_only_per_listener("ssl.keystore.location")
    assert not is_only_per_listener("listener.name.internal.ssl.keystore.location")
    assert not is_only_per_listener("num.partitions")
