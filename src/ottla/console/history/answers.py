"""Reads what Prometheus answers to a query of a range: one series of numbers. Pure."""

import math
from typing import Final

import msgspec

from ottla.console.history.ranges import TimeRange
from ottla.model.errors import InvalidRequestError

_NONSENSE: Final = "Prometheus's answer is not what its API promises"


class BadAnswerError(InvalidRequestError):
    """Prometheus answered something that cannot be used."""


class _Result(msgspec.Struct):
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    resultType: str
    result: list[_Result]


class _Answer(msgspec.Struct):
    status: str
    data: _Data


_DECODER: Final = msgspec.json.Decoder(_Answer)


def read_answer(body: bytes, asked: TimeRange) -> dict[int, float]:
    """The values by time, empty if Prometheus has none. What is not a finite number, or not a time of the range, is
    left out. Raises `BadAnswerError`."""
    try:
        answer = _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise BadAnswerError(_NONSENSE) from None
    if answer.status != "success" or answer.data.resultType != "matrix" or len(answer.data.result) > 1:
        raise BadAnswerError(_NONSENSE)
    times = asked.times
    found: dict[int, float] = {}
    for result in answer.data.result:
        for at, text in result.values:
            try:
                value = float(text)
            except ValueError:
                raise BadAnswerError(_NONSENSE) from None
            if math.isfinite(at) and round(at) in times and math.isfinite(value):
                found[round(at)] = value
    return found
