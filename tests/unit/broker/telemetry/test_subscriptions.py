"""Which subscriptions are for a client, and what they ask it for together."""

from uuid import UUID

import pytest

from ottla.broker.telemetry.subscriptions import TelemetryClient, WantedMetrics, read_subscriptions, wanted_metrics
from ottla.metadata.configs.client_metrics_configs import validate_client_metrics_configs
from ottla.model.errors import InvalidConfigError, InvalidRequestError

CLIENT = TelemetryClient(
    instance_id=UUID("12345678-90ab-cdef-1234-567890abcdef"),
    client_id="billing-7",
    software_name="apache-kafka-java",
    software_version="4.3.0",
    address="10.0.0.7",
    port="50123",
)


def wanted(client: TelemetryClient = CLIENT, **resources: dict[str, str]) -> WantedMetrics:
    return wanted_metrics(client, read_subscriptions(resources))


@pytest.mark.parametrize(
    ("match", "is_for_it"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),  # the whole text must match
        ("client_instance_id=EjRWeJCrze8SNFZ4kKvN7w", True),
        ("client_software_name=apache-kafka-java,client_software_version=4\\..*", True),
        ("client_software_name=apache-kafka-java,client_software_version=3\\..*", False),
        ("client_source_address=10\\.0\\..*,client_source_port=50123", True),
        (" client_source_port = 9092 ", False),
    ],
)
def test_clients_are_chosen_by_what_they_are(match: str, is_for_it: bool) -> None:
    assert (("a.",) if is_for_it else ()) == wanted(one={"metrics": "a.", "match": match}).metrics


def test_a_client_without_an_id_matches_no_pattern_for_it() -> None:
    silent = CLIENT._replace(client_id=None)
    assert () == wanted(silent, one={"metrics": "a.", "match": "client_id=.*"}).metrics
    assert ("a.",) == wanted(silent, one={"metrics": "a."}).metrics


def test_subscriptions_are_combined() -> None:
    """The ids are those that Kafka 4.3 gave for the same client and the same configs."""
    one, two = {"metrics": "b.,a.", "interval.ms": "5000"}, {"metrics": "a.,c.", "interval.ms": "700"}
    assert (("a.", "b.", "c."), 700) == wanted(one=one, two=two)[:2]
    assert WantedMetrics(("*",), 300_000, 1012207395) == wanted(one={"metrics": "b."}, two={"metrics": "*,a."})
    assert WantedMetrics((), 300_000, -725132322) == wanted()
    single = {"metrics": "org.apache.kafka.producer.", "interval.ms": "1000"}
    assert WantedMetrics(("org.apache.kafka.producer.",), 1000, 690914681) == wanted(one=single)
    assert wanted(one=one) == wanted(two=one)
    assert wanted(one=one).subscription_id != wanted(one=two).subscription_id
    assert wanted(one=one) != wanted(CLIENT._replace(instance_id=UUID(int=5)), one=one)


def test_a_stored_subscription_that_is_not_understood_is_left_out() -> None:
    broken = {"one": {"metrics": "a.", "match": "client_id=("}, "two": {"metrics": "b."}, "three": {"interval.ms": "x"}}
    assert ("b.",) == wanted(CLIENT, **broken).metrics


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"metricz": "a"}, InvalidRequestError),
        ({"interval.ms": "99"}, InvalidRequestError),
        ({"interval.ms": "3600001"}, InvalidRequestError),
        ({"interval.ms": "often"}, InvalidConfigError),
        ({"metrics": "a,,b"}, InvalidConfigError),
        ({"match": "client_name=a"}, InvalidConfigError),
        ({"match": "client_id"}, InvalidConfigError),
        ({"match": "client_id="}, InvalidConfigError),
        ({"match": "client_id=a=b"}, InvalidConfigError),
        ({"match": "client_id=("}, InvalidConfigError),
    ],
)
def test_wrong_configs_are_refused_as_by_kafka(configs: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        validate_client_metrics_configs(configs)
    assert error is type(caught.value)


def test_the_limits_of_the_interval_are_allowed() -> None:
    for interval in ("100", "3600000"):
        validate_client_metrics_configs({"interval.ms": interval, "metrics": "", "match": ""})
