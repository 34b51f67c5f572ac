"""The loop of a client program: JSON commands from stdin, answers to stdout, errors with Kafka's code.

A program gives a table of functions by command; each takes the command's arguments and returns the answer. An
exception becomes an error answer: `code_of` finds Kafka's code in the library's exceptions.
"""

import base64
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Command = Callable[..., Any]
"""Returns the answer, or None for an empty one."""


def run(commands: Mapping[str, Command], code_of: Callable[[BaseException], int | None]) -> None:
    """Answers until the input ends."""
    # Libraries may print; the answers keep the real stdout for themselves.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        arguments = json.loads(line)
        try:
            answer: Mapping[str, Any] = commands[arguments.pop("command")](**arguments) or {}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": {"code": code_of(error), "text": f"{type(error).__name__}: {error}"}}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def commands_of(program: object) -> dict[str, Command]:
    """A program's public methods by name."""
    return {name: getattr(program, name) for name in dir(program) if not name.startswith("_")}


def to_bytes(text: str | None) -> bytes | None:
    """What the line carried."""
    return None if text is None else base64.b64decode(text)


def to_text(data: bytes | None) -> str | None:
    """What the line can carry."""
    return None if data is None else base64.b64encode(data).decode()


def to_headers(rows: list[list[str | None]]) -> list[tuple[str, bytes | None]]:
    """A record's headers as the libraries take them."""
    return [(str(name), to_bytes(value)) for name, value in rows]


def row_of(
    *, partition: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Any
) -> dict[str, Any]:
    """A record that was read, as the line carries it."""
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": to_text(key),
        "value": to_text(value),
        "headers": [[name, to_text(data)] for name, data in headers or ()],
    }
