"""The screen of `ottla serve` for people, and that scripts do not get it."""

from ottla.broker.configs.configuration import BrokerConfig
from ottla.cli.serve.welcome import Services, welcome
from ottla.version import __version__


def config(**settings: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig.parse({}, {"log.dirs": "/data/one,/data/two", "listeners": "PLAINTEXT://:9092", **given})


def test_the_screen_of_a_broker_with_everything() -> None:
    services = Services(http=("0.0.0.0", 9644), registry=("127.0.0.1", 8081))
    shown = "\n".join(welcome(["broker.example:9092"], config(), "zookeeper://zk1:2181", services))
    assert (
        f"""
  Ottla {__version__}
    address   broker.example:9092
    data      /data/one, /data/two
    metadata  zookeeper://zk1:2181
    registry  http://127.0.0.1:8081
    metrics   http://localhost:9644/metrics

  In another terminal:
    export OTTLA_BOOTSTRAP=broker.example:9092   the commands below connect to it
    ottla topics create events                   create a topic
    echo hello | ottla produce events            write a record
    ottla consume events                         read it
    ottla cluster health                         check the cluster
    ottla doctor                                 check this machine

  Ctrl-C stops the broker.
"""
        == shown
    )


def test_only_what_is_there_is_shown() -> None:
    lines = list(welcome(["localhost:9092", "localhost:9093"], config(), "embedded", Services(http=("127.0.0.1", 0))))
    assert ["    addresses  localhost:9092, localhost:9093", "  Ctrl-C stops the brokers."] == [
        line for line in lines if "addresses" in line or "Ctrl" in line
    ]
    assert [] == [line for line in lines if "OTTLA_BOOTSTRAP" in line or "metrics" in line or "registry" in line]


def test_a_secured_listener_asks_for_a_login() -> None:
    secured = config(listeners="SASL_PLAINTEXT://:9092,PLAINTEXT://:9093", sasl_enabled_mechanisms="SCRAM-SHA-512")
    lines = list(welcome(["localhost:9092"], secured, "embedded", Services()))
    assert 1 == len([line for line in lines if "store a login for SASL_PLAINTEXT" in line])
