"""franz-go's guess of a broker's version, which kcl and kminion show to operators."""

from tests.compat.clients.broker_under_test import KAFKA_VERSIONS, TARGET
from tests.compat.clients.conftest import ClientOf
from tests.compat.kafka_jars import NEWEST_CLIENTS_VERSION


def test_the_version_that_franz_go_guesses(client_of: ClientOf) -> None:
    """An exact match: the broker has all APIs of that release, in its versions, and no others."""
    version = KAFKA_VERSIONS.get(TARGET, NEWEST_CLIENTS_VERSION)
    assert [f"v{version.rpartition('.')[0]}"] == client_of("franz-go").call("guess_version")["guesses"]
