"""ApiVersions: which requests and versions this broker takes, and the cluster's features.

The first thing that every connection asks, in the one API whose unknown versions are answered too. So it has its own
entrance, `answer_api_versions`, which takes any version and yields whole frames from encoded bodies that are kept. The
ranges themselves are in `ottla.protocol.apis`.
"""

import re
from functools import cache
from struct import Struct
from typing import Final

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.static.primitive import i16, i64

from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ADVERTISED, SERVED, ApiKey, Versions
from ottla.protocol.messages import milliseconds, read_request, wire_error, write_response

_HEADER: Final = Struct(">ii")
_RANGE: Final = SERVED[ApiKey.API_VERSIONS]
_SOFTWARE_SINCE: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""What a client's software may be called, and its version."""

_LISTED: Final[dict[ErrorCode, dict[ApiKey, Versions]]] = {
    ErrorCode.NONE: ADVERTISED,
    ErrorCode.UNSUPPORTED_VERSION: {ApiKey.API_VERSIONS: _RANGE},
    ErrorCode.INVALID_REQUEST: {},
}
_FEATURES: Final[dict[str, tuple[int, int, int]]] = {
    "metadata.version": (7, 30, 30),
    "group.version": (0, 1, 1),
    "transaction.version": (0, 2, 2),
}
"""Lowest and highest level, and the one in force, of what clients act on; whatever is not named here is not built.

Tools read Kafka's version from the first: 30 is 4.3. By the second, the broker can assign a group's partitions; by the
third, partitions join transactions without being added.
"""


def answer_api_versions(version: int, correlation_id: int, body: memoryview) -> bytes:
    """The whole response frame to an ApiVersions request of any version.

    One that is not served is answered in version 0, with the range that is: the body cannot be understood, but the
    client may come again in a version that both sides know. Raises BrokenMessageError if a served one cannot be read.
    """
    if version not in _RANGE:
        return api_versions_response(0, correlation_id, ErrorCode.UNSUPPORTED_VERSION)
    if version >= _SOFTWARE_SINCE and not _is_well_named(read_request(ApiKey.API_VERSIONS, version, body)):
        return api_versions_response(version, correlation_id, ErrorCode.INVALID_REQUEST)
    return api_versions_response(version, correlation_id)


def api_versions_response(version: int, correlation_id: int, error: ErrorCode = ErrorCode.NONE) -> bytes:
    """A whole response frame in a served version."""
    body = _body(version, error)
    return _HEADER.pack(len(body) + 4, correlation_id) + body


def _is_well_named(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) for name in names)


@cache
def _body(version: int, error: ErrorCode) -> bytes:
    return write_response(ApiKey.API_VERSIONS, version, 0, _response(error))[_HEADER.size :]


def _response(error: ErrorCode) -> ApiVersionsResponse:
    features = _FEATURES.items() if error is ErrorCode.NONE else ()
    return ApiVersionsResponse(
        error_code=wire_error(error),
        api_keys=tuple(
            ApiVersion(api_key=i16(key), min_version=i16(versions.lowest), max_version=i16(versions.highest))
            for key, versions in sorted(_LISTED[error].items())
        ),
        throttle_time=milliseconds(0),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=i16(lowest), max_version=i16(highest))
            for name, (lowest, highest, _) in features
        ),
        finalized_features_epoch=i64(0 if features else -1),
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=i16(level), min_version_level=i16(level))
            for name, (_, _, level) in features
        ),
    )
