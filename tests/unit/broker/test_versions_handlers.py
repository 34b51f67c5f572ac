"""ApiVersions: what is advertised, in every version, and to whom it is refused."""

from types import MappingProxyType
from typing import Any

import pytest

from ottla.broker.handlers.versions import answer_api_versions
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import FEATURES_KEY
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ADVERTISED, TELEMETRY_APIS, ApiKey
from ottla.protocol.messages import BrokenMessageError
from ottla.security.connection_context import ClientSoftware
from tests.wire.exchange import read_response, request_body

SOFTWARE = {"client_software_name": "a-client", "client_software_version": "1.0"}
IMAGE = ClusterImage(
    cluster_id="the-cluster",
    features=MappingProxyType({"metadata.version": 30, "group.version": 0, "transaction.version": 1}),
    revisions=MappingProxyType({FEATURES_KEY: 17}),
)


def asked(version: int, body: bytes, *, with_telemetry: bool = False) -> bytes:
    return answer_api_versions(version, 77, memoryview(body), IMAGE, BrokerId(3), with_telemetry=with_telemetry)


def responded(version: int, answered_in: int | None = None, **values: Any) -> Any:
    frame = asked(version, request_body(ApiKey.API_VERSIONS, version, {**SOFTWARE, **values}))
    return read_response(ApiKey.API_VERSIONS, version if answered_in is None else answered_in, frame[4:])[1]


def answered(
    version: int, body: bytes, *, answered_in: int, with_telemetry: bool = False
) -> tuple[int, dict[int, tuple[int, int]]]:
    frame = asked(version, body, with_telemetry=with_telemetry)
    assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
    correlation_id, response = read_response(ApiKey.API_VERSIONS, answered_in, frame[4:])
    assert 77 == correlation_id
    return response.error_code.value, {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists_everything(version: int) -> None:
    body = request_body(ApiKey.API_VERSIONS, version, SOFTWARE)
    expected = {int(key): tuple(versions) for key, versions in ADVERTISED.items()}
    assert (0, expected) == answered(version, body, answered_in=version, with_telemetry=True)
    without = {key: versions for key, versions in expected.items() if key not in TELEMETRY_APIS}
    assert (0, without) == answered(version, body, answered_in=version)


@pytest.mark.parametrize("version", [-1, 6, 32767])
def test_an_unknown_version_is_answered_in_version_0_whatever_its_body(version: int) -> None:
    assert (ErrorCode.UNSUPPORTED_VERSION, {18: (0, 5)}) == answered(version, b"\xff\xff", answered_in=0)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a-", "ä", "a\n"])
def test_software_must_be_named_properly(name: str) -> None:
    for field in SOFTWARE:
        body = request_body(ApiKey.API_VERSIONS, 3, {**SOFTWARE, field: name})
        assert (ErrorCode.INVALID_REQUEST, {}) == answered(3, body, answered_in=3)


def test_a_broken_body() -> None:
    with pytest.raises(BrokenMessageError, match="API_VERSIONS v3"):
        asked(3, b"\x09abc")


def test_only_a_good_answer_names_features() -> None:
    good = responded(4)
    assert {"metadata.version": 30, "transaction.version": 1} == {
        each.name: each.max_version_level for each in good.finalized_features
    }
    assert 17 == good.finalized_features_epoch
    bad = responded(4, client_software_name="")
    assert ((), (), -1) == (bad.supported_features, bad.finalized_features, bad.finalized_features_epoch)


def test_old_clients_are_not_told_of_features_whose_lowest_level_is_0() -> None:
    supported = {each.name: (each.min_version, each.max_version) for each in responded(4).supported_features}
    assert {
        "metadata.version": (7, 30),
        "group.version": (0, 1),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
    }.items() <= supported.items()
    assert ["metadata.version"] == [each.name for each in responded(3).supported_features]


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "expected"),
    [
        (None, -1, ErrorCode.NONE),
        ("the-cluster", 3, ErrorCode.NONE),
        ("the-cluster", 4, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another-cluster", 3, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("the-cluster", -1, ErrorCode.INVALID_REQUEST),
        (None, 3, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_means_another_broker(cluster_id: str | None, node_id: int, expected: ErrorCode) -> None:
    response = responded(5, cluster_id=cluster_id, node_id=node_id)
    assert (expected, expected is ErrorCode.NONE) == (response.error_code.value, bool(response.api_keys))


def test_the_software_of_a_client_is_noted() -> None:
    for version, error, expected in (
        (0, 0, ("unknown", "unknown")),
        (3, 0, ("a-client", "1.0")),
        (3, 42, ("unknown", "unknown")),
    ):
        software = ClientSoftware()
        name = "a client" if error else "a-client"
        body = request_body(ApiKey.API_VERSIONS, version, {**SOFTWARE, "client_software_name": name})
        answer_api_versions(version, 77, memoryview(body), IMAGE, BrokerId(3), software)
        assert expected == (software.name, software.version)
