"""ApiVersions: which requests and versions this broker takes, and the cluster's features.

The first thing that every connection asks, in the one API whose unknown versions are answered too. So it has its own
entrance, `answer_api_versions`, which takes any version and yields whole frames from encoded bodies that are kept. The
ranges themselves are in `ottla.protocol.apis`, the features in `ottla.metadata.features`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.static.primitive import i16, i64

from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import FEATURES_KEY
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ADVERTISED, SERVED, TELEMETRY_APIS, ApiKey, Versions
from ottla.protocol.messages import milliseconds, read_request, wire_error, write_response
from ottla.security.connection_context import ClientSoftware

_HEADER: Final = Struct(">ii")
_RANGE: Final = SERVED[ApiKey.API_VERSIONS]
_SOFTWARE_SINCE: Final = 3
_FLEXIBLE_SINCE: Final = 3
_THROTTLE_SINCE: Final = 1
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""What a client's software may be called, and its version."""

_UNDECLARED_BELOW: Final = 4
"""Older clients cannot read a feature whose lowest level is 0."""
_NO_BROKER: Final = -1
_BODIES_KEPT_MAX: Final = 64

_Levels = tuple[tuple[str, int], ...]

_LISTED: Final[Mapping[ErrorCode, Mapping[ApiKey, Versions]]] = {
    ErrorCode.NONE: ADVERTISED,
    ErrorCode.UNSUPPORTED_VERSION: {ApiKey.API_VERSIONS: _RANGE},
    ErrorCode.INVALID_REQUEST: {},
    ErrorCode.REBOOTSTRAP_REQUIRED: {},
}


def answer_api_versions(
    version: int,
    correlation_id: int,
    body: memoryview,
    image: ClusterImage,
    broker_id: BrokerId,
    software: ClientSoftware | None = None,
    *,
    with_telemetry: bool = False,
) -> bytes:
    """The whole response frame to an ApiVersions request of any version; notes the client's software.

    One that is not served is answered in version 0, with the range that is: the body cannot be understood, but the
    client may come again in a version that both sides know. Raises BrokenMessageError if a served one cannot be read.
    """
    if version not in _RANGE:
        return _frame(0, correlation_id, ErrorCode.UNSUPPORTED_VERSION)
    error = ErrorCode.NONE
    if version >= _SOFTWARE_SINCE:
        request = read_request(ApiKey.API_VERSIONS, version, body)
        error = _error_of(request, image, broker_id)
        if error is ErrorCode.NONE and software is not None:
            software.name, software.version = request.client_software_name, request.client_software_version
    if error is not ErrorCode.NONE:
        return _frame(version, correlation_id, error)
    # A feature at level 0 is disabled, and not listed.
    levels = tuple(sorted((name, level) for name, level in image.features.items() if level))
    epoch = image.revision_of(FEATURES_KEY)
    return _frame(version, correlation_id, ErrorCode.NONE, levels, epoch, with_telemetry=with_telemetry)


def _frame(
    version: int,
    correlation_id: int,
    error: ErrorCode,
    levels: _Levels = (),
    epoch: int = -1,
    *,
    with_telemetry: bool = False,
) -> bytes:
    body = _body(version, error, levels, epoch, with_telemetry)
    return _HEADER.pack(len(body) + 4, correlation_id) + body


def throttle_position(version: int, frame: bytes) -> int | None:
    """Where a response frame has its throttle time: behind the list of APIs; None in versions without one."""
    if version < _THROTTLE_SINCE or version not in _RANGE:
        return None
    at = _HEADER.size + 2
    if version < _FLEXIBLE_SINCE:
        return at + 4 + 6 * int.from_bytes(frame[at : at + 4], "big")
    # A compact array of up to 126 entries has a count of one byte; each entry ends with its tagged fields.
    return at + 1 + 7 * (frame[at] - 1)


def _error_of(request: Any, image: ClusterImage, broker_id: BrokerId) -> ErrorCode:
    """What is wrong with a request: software without a proper name, or a client that means another broker.

    A client that knows a broker's address from old metadata may reach a broker of another cluster there, or another
    broker; it must start from its bootstrap addresses again.
    """
    names = (request.client_software_name, request.client_software_version)
    if not all(_SOFTWARE.fullmatch(name) for name in names):
        return ErrorCode.INVALID_REQUEST
    if (request.cluster_id is None) != (request.node_id == _NO_BROKER):
        return ErrorCode.INVALID_REQUEST
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (image.cluster_id, broker_id):
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


@lru_cache(_BODIES_KEPT_MAX)
def _body(version: int, error: ErrorCode, levels: _Levels, epoch: int, with_telemetry: bool) -> bytes:
    response = _response(version, error, levels, epoch, with_telemetry=with_telemetry)
    return write_response(ApiKey.API_VERSIONS, version, 0, response)[_HEADER.size :]


def _response(
    version: int, error: ErrorCode, levels: _Levels, epoch: int, *, with_telemetry: bool
) -> ApiVersionsResponse:
    supported = SUPPORTED_FEATURES.items() if error is ErrorCode.NONE else ()
    return ApiVersionsResponse(
        error_code=wire_error(error),
        api_keys=tuple(
            ApiVersion(api_key=i16(key), min_version=i16(versions.lowest), max_version=i16(versions.highest))
            for key, versions in sorted(_LISTED[error].items())
            if with_telemetry or key not in TELEMETRY_APIS
        ),
        throttle_time=milliseconds(0),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=i16(lowest), max_version=i16(highest))
            for name, (lowest, highest) in supported
            if lowest > 0 or version >= _UNDECLARED_BELOW
        ),
        finalized_features_epoch=i64(epoch),
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, max_version_level=i16(level), min_version_level=i16(level))
            for name, level in levels
        ),
    )
