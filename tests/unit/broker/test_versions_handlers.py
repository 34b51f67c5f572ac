"""ApiVersions: what is advertised, in every version, and to whom it is refused."""

import pytest

from ottla.broker.handlers.versions import answer_api_versions, api_versions_response
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ADVERTISED, ApiKey
from ottla.protocol.messages import BrokenMessageError
from tests.wire.exchange import read_response, request_body

SOFTWARE = {"client_software_name": "a-client", "client_software_version": "1.0"}


def answered(version: int, body: bytes, *, answered_in: int) -> tuple[int, dict[int, tuple[int, int]]]:
    frame = answer_api_versions(version, 77, memoryview(body))
    assert len(frame) - 4 == int.from_bytes(frame[:4], "big")
    correlation_id, response = read_response(ApiKey.API_VERSIONS, answered_in, frame[4:])
    assert 77 == correlation_id
    return response.error_code.value, {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


@pytest.mark.parametrize("version", range(5))
def test_every_version_lists_everything(version: int) -> None:
    body = request_body(ApiKey.API_VERSIONS, version, SOFTWARE)
    expected = {int(key): tuple(versions) for key, versions in ADVERTISED.items()}
    assert (0, expected) == answered(version, body, answered_in=version)


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_an_unknown_version_is_answered_in_version_0_whatever_its_body(version: int) -> None:
    assert (ErrorCode.UNSUPPORTED_VERSION, {18: (0, 4)}) == answered(version, b"\xff\xff", answered_in=0)


@pytest.mark.parametrize("name", ["", "a b", "-a", "a-", "ä", "a\n"])
def test_software_must_be_named_properly(name: str) -> None:
    for field in SOFTWARE:
        body = request_body(ApiKey.API_VERSIONS, 3, {**SOFTWARE, field: name})
        assert (ErrorCode.INVALID_REQUEST, {}) == answered(3, body, answered_in=3)


def test_a_broken_body() -> None:
    with pytest.raises(BrokenMessageError, match="API_VERSIONS v3"):
        answer_api_versions(3, 1, memoryview(b"\x09abc"))


def test_only_a_good_answer_names_features() -> None:
    _, good = read_response(ApiKey.API_VERSIONS, 4, api_versions_response(4, 1)[4:])
    levels = {feature.name: feature.max_version_level for feature in good.finalized_features}
    assert {"metadata.version": 30, "group.version": 1, "transaction.version": 2} == levels
    assert 0 == good.finalized_features_epoch
    _, bad = read_response(ApiKey.API_VERSIONS, 4, api_versions_response(4, 1, ErrorCode.INVALID_REQUEST)[4:])
    assert ((), (), -1) == (bad.supported_features, bad.finalized_features, bad.finalized_features_epoch)
