"""The benchmark of security: its clients against a real broker, and its ratios."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kafka_race import librdkafka_load
from benchmarks.kafka_race.brokers import RunningBroker
from benchmarks.kafka_race.raw_load import LoadError
from benchmarks.security_race import brokers, login_load
from ottla.testing.certificates import CertificateAuthority


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[brokers.Secured, str]]:
    folder: Path = tmp_path_factory.mktemp("security")
    authority = CertificateAuthority(folder / "certificates")
    made = brokers.Secured(authority)
    broker = RunningBroker(brokers.SecuredOttla(made), folder / "ottla")
    broker.start()
    try:
        broker.wait_listening()
        yield made, str(authority.file)
    finally:
        broker.stop()


def test_handshakes(secured: tuple[brokers.Secured, str], tmp_path: Path) -> None:
    made, authority = secured
    done = login_load.handshakes(made.ports.tls, authority=authority, seconds=1.0)
    assert done.requests > 0
    assert done.seconds >= 1.0
    other = CertificateAuthority(tmp_path)
    with pytest.raises(LoadError, match=ssl.SSLCertVerificationError.__name__):
        login_load.handshakes(made.ports.tls, authority=str(other.file), seconds=0.2)


@pytest.mark.slow
def test_logins(secured: tuple[brokers.Secured, str]) -> None:
    made, _ = secured
    login = {"mechanism": brokers.MECHANISM, "user": brokers.USER, "password": brokers.PASSWORD}
    assert login_load.logins(made.ports.sasl, seconds=1.0, **login).requests > 0
    with pytest.raises(LoadError, match="the login failed with code 58"):
        login_load.logins(made.ports.sasl, seconds=0.2, **{**login, "password": "wrong"})


@pytest.mark.slow
def test_the_pause_reaches_the_consumer() -> None:
    """librdkafka refuses one that is below 0, before it connects."""
    with pytest.raises(LoadError, match=r'"fetch\.queue\.backoff\.ms" value -1'):
        librdkafka_load.consume("127.0.0.1:1", "t", partitions=1, records=1, pause_ms=-1)
