"""DescribeConfigs responses as bytes, put together from pieces that are encoded one at a time.

A tool that shows all topics asks for the configs of all of them at once, which takes kio two milliseconds each, and
most of them have the same. So lists of configs are encoded for themselves: `configs.py` keeps those that come again,
and lets the event loop serve others in between.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.static.primitive import i8

from ottla.metadata.configs.definition import DescribedConfig
from ottla.model.error_codes import ErrorCode
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds, wire_error, write_response
from ottla.protocol.varints import unsigned_varint

_FLEXIBLE_SINCE: Final = 4
_HEADER_BYTES: Final = 8
_THROTTLE_BYTES: Final = 4
_COUNT: Final = Struct(">i")
_NO_TAGS: Final = b"\x00"


def encode_configs(
    configs: Iterable[DescribedConfig], version: int, *, with_synonyms: bool = False, with_documentation: bool = False
) -> bytes:
    """The list of a resource's configs, and whatever ends the resource's entry, in a version's form."""
    results = tuple(_result(each, with_synonyms, with_documentation) for each in configs)
    bare, full = _encode_entry(version), _encode_entry(version, configs=results)
    return full[len(bare) - _end_bytes(version) :]


def encode_entry(
    version: int, resource_type: int, name: str, configs: bytes, error: ErrorCode = ErrorCode.NONE, message: str = ""
) -> bytes:
    """One resource's entry; `configs` is what `encode_configs` made in the same version."""
    bare = _encode_entry(version, resource_type, name, error, message)
    return bare[: -_end_bytes(version)] + configs


def assemble(version: int, entries: Sequence[bytes]) -> bytes:
    """The body of a response with these entries and no throttle time."""
    throttle = bytes(_THROTTLE_BYTES)
    if version >= _FLEXIBLE_SINCE:
        return b"".join((throttle, unsigned_varint(len(entries) + 1), *entries, _NO_TAGS))
    return b"".join((throttle, _COUNT.pack(len(entries)), *entries))


def _encode_entry(
    version: int,
    resource_type: int = 0,
    name: str = "",
    error: ErrorCode = ErrorCode.NONE,
    message: str = "",
    configs: tuple[DescribeConfigsResourceResult, ...] = (),
) -> bytes:
    result = DescribeConfigsResult(
        error_code=wire_error(error),
        error_message=message,
        resource_type=i8(resource_type),
        resource_name=name,
        configs=configs,
    )
    response = DescribeConfigsResponse(throttle_time=milliseconds(0), results=(result,))
    frame = write_response(ApiKey.DESCRIBE_CONFIGS, version, 0, response)
    if version >= _FLEXIBLE_SINCE:
        return frame[_HEADER_BYTES + 1 + _THROTTLE_BYTES + 1 : -1]
    return frame[_HEADER_BYTES + _THROTTLE_BYTES + _COUNT.size :]


def _end_bytes(version: int) -> int:
    """How long an empty list of configs is, with what follows it: a count, and tagged fields."""
    return 2 if version >= _FLEXIBLE_SINCE else _COUNT.size


def _result(config: DescribedConfig, with_synonyms: bool, with_documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=i8(config.source),
        is_sensitive=config.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=each.name, value=each.value, source=i8(each.source))
            for each in (config.synonyms if with_synonyms else ())
        ),
        config_type=i8(config.type),
        documentation=config.documentation if with_documentation else None,
    )
