"""The benchmark of security: its clients against a real broker, and its ratios."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import security
from benchmarks.kafka_race import librdkafka_load
from benchmarks.kafka_race.brokers import RunningBroker
from benchmarks.kafka_race.raw_load import LoadError
from benchmarks.kafka_race.scoreboard import Measure, Sample
from benchmarks.security_race import brokers, login_load
from benchmarks.security_race.cases import COMPARED
from benchmarks.vs_kafka import Samples
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


@pytest.mark.broker
def test_handshakes(secured: tuple[brokers.Secured, str], tmp_path: Path) -> None:
    made, authority = secured
    done = login_load.handshakes(made.ports.tls, authority=authority, seconds=1.0)
    assert done.requests > 0
    assert done.seconds >= 1.0
    other = CertificateAuthority(tmp_path)
    with pytest.raises(LoadError, match=ssl.SSLCertVerificationError.__name__):
        login_load.handshakes(made.ports.tls, authority=str(other.file), seconds=0.2)


@pytest.mark.broker
def test_logins(secured: tuple[brokers.Secured, str]) -> None:
    made, _ = secured
    login = {"mechanism": brokers.MECHANISM, "user": brokers.USER, "password": brokers.PASSWORD}
    assert login_load.logins(made.ports.sasl, seconds=1.0, **login).requests > 0
    with pytest.raises(LoadError, match="the login failed with code 58"):
        login_load.logins(made.ports.sasl, seconds=0.2, **{**login, "password": "wrong"})


@pytest.mark.broker
def test_the_pause_reaches_the_consumer() -> None:
    """librdkafka refuses one that is below 0, before it connects."""
    with pytest.raises(LoadError, match=r'"fetch\.queue\.backoff\.ms" value -1'):
        librdkafka_load.consume("127.0.0.1:1", "t", partitions=1, records=1, pause_ms=-1)


def test_shares_are_taken_within_a_round() -> None:
    samples = Samples()
    secure, plain, quantity = COMPARED[0]
    for rival, rounds in {"kafka": [(50, 100), (10, 40), (60, 80)], "ottla": [(90, 100)] * 3}.items():
        for with_it, without in rounds:
            for case, value in ((secure, with_it), (plain, without)):
                samples.add(rival, Measure(case=case, quantity=quantity, more_is_better=True), Sample(value=value))
    found = security.shares(samples)
    assert {f"{secure} / {plain}": {"kafka": 0.5, "ottla": 0.9}} == found
    assert f"| {secure} / {plain} | 0.50 | 0.90 |" in security.share_table(found, as_markdown=True)
