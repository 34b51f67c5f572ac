"""Writes the vectors: random schemas, with what protoc and Confluent's registry say about them.

    python -m tests.vectors.protobuf.generate --protoc "..." --confluent "..."

`--protoc` is the command of `protoc_judge.py`. `--confluent` is a command that answers, line by line, with the classes
of Confluent's protobuf-provider: `{"op": "texts", "text", "references"}` with `canonical`, `normalized` and
`ignore_extensions`; `{"op": "diff", "writer", "reader"}` with `differences`, a list of the type and path of those that
are not compatible; or with `error`. It must take two references of one path for different versions if any reference
differs. Where no command is given, the vectors that need it are left as they are.

- `texts.jsonl.gz`: schemas with their texts by Confluent's registry and their FileDescriptorProto by protoc, which is a
  schema too, and has another text.
- `pairs.jsonl.gz`: pairs of schemas with the differences that Confluent's registry finds.
- `validity.jsonl.gz`: valid and invalid schemas with protoc's verdict, and the FileDescriptorProto of the valid ones.
"""

import argparse
import gzip
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.vectors.protobuf.hand_written import CASES
from tests.vectors.protobuf.random_schemas import Generator

HERE = Path(__file__).parent
TEXT_LENGTH_MAX = 4_000
WORDS = [
    "message",
    "enum",
    "oneof",
    "optional",
    "repeated",
    "required",
    "map",
    "group",
    "option",
    "reserved",
    "extensions",
    "extend",
    "import",
    "package",
    "service",
    "rpc",
    "syntax",
    "string",
    "int32",
    "true",
    "0",
    "1",
    "7",
    "19500",
    "536870912",
    "-1",
    '"x"',
    "{",
    "}",
    "[",
    "]",
    ";",
    "=",
    ",",
    ".",
    "(",
    ")",
    "<",
    ">",
    "to",
    "max",
    "deprecated",
    "packed",
    "default",
    "json_name",
    "stream",
    "returns",
    "bytes",
    "features",
    "1.5",
    "0x10",
    "08",
    "inf",
]
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|//[^\n]*|/\*[\s\S]*?\*/|[A-Za-z0-9_]+|\S')


class Judge:
    """A program that answers questions. It is started again when it crashes, which protoc does at times."""

    def __init__(self, command: str) -> None:
        self._command = shlex.split(command)
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._start()
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def texts(confluent: Judge, protoc: Judge, count: int) -> Iterator[dict[str, Any]]:
    for seed in range(count):
        text, references = Generator(seed).schema().texts(Random(seed))
        if len(text) + sum(map(len, references.values())) > 2 * TEXT_LENGTH_MAX:
            continue
        schema = {"text": text, "references": references}
        theirs = confluent.ask({"op": "texts", **schema})
        compiled = protoc.ask(schema)
        assert theirs is not None
        assert compiled is not None
        if "error" in compiled:
            raise SystemExit(f"seed {seed} is not valid: {compiled['error']}")
        registered = confluent.ask({"op": "texts", "text": compiled["descriptor"], "references": references})
        assert registered is not None
        yield {
            "seed": seed,
            **schema,
            "canonical": theirs["canonical"],
            "normalized": theirs["normalized"],
            "ignore_extensions": theirs["ignore_extensions"],
            "descriptor": compiled["descriptor"],
            "descriptor_canonical": registered["canonical"],
        }


def pairs(confluent: Judge, protoc: Judge, count: int) -> Iterator[dict[str, Any]]:
    seed = 0
    while count:
        seed += 1
        generator = Generator(seed, with_options=False)
        schema = generator.schema()
        sides = {}
        for side, version in (("writer", schema), ("reader", generator.changed(schema))):
            text, references = version.texts(Random(seed))
            sides[side] = {"text": text, "references": references}
        if sum(len(json.dumps(side)) for side in sides.values()) > TEXT_LENGTH_MAX:
            continue
        compiled = protoc.ask(sides["reader"])
        if compiled is None or "error" in compiled:
            continue  # The change made it invalid.
        theirs = confluent.ask({"op": "diff", **sides})
        assert theirs is not None
        yield {
            "seed": seed,
            **sides,
            "differences": sorted({tuple(difference) for difference in theirs["differences"]}),
        }
        count -= 1


def validity(protoc: Judge, count: int) -> Iterator[dict[str, Any]]:
    for case in CASES:
        answer = protoc.ask({"text": case})
        if answer is not None:
            yield {"text": case, "references": {}, **answer}
    seed = 0
    while count:
        seed += 1
        rng = Random(seed)
        schema = Generator(seed, with_options=seed % 2 == 0).schema()
        text, references = schema.texts(rng)
        if schema.libraries or len(text) > TEXT_LENGTH_MAX // 4:
            continue
        damaged = {"text": _damaged(text, rng), "references": references}
        answer = protoc.ask(damaged)
        if answer is not None:
            yield {**damaged, **answer}
            count -= 1


def _damaged(text: str, rng: Random) -> str:
    """A text with a token or two removed, added, replaced or repeated."""
    tokens = [token for token in TOKEN.findall(text) if not token.startswith(("//", "/*"))]
    for _ in range(rng.choice((1, 1, 1, 2))):
        position = rng.randrange(len(tokens))
        match rng.randrange(5):
            case 0:
                del tokens[position]
            case 1:
                tokens.insert(position, rng.choice(WORDS))
            case 2:
                tokens[position] = rng.choice(WORDS)
            case 3:
                tokens[position] = rng.choice(tokens)
            case _:
                tokens.insert(position, tokens[position])
        if not tokens:
            break
    return " ".join(tokens)


def write(name: str, vectors: Iterator[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(vector, separators=(",", ":")) + "\n" for vector in vectors)
    # No time in the file: the same vectors are the same bytes.
    (HERE / name).write_bytes(gzip.compress(lines.encode(), mtime=0))


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((HERE / name).read_bytes()).splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the vectors of Protobuf schemas.")
    parser.add_argument("--protoc", required=True, help="the command of protoc_judge.py")
    parser.add_argument("--confluent", help="the command that asks Confluent's classes")
    arguments = parser.parse_args()
    protoc = Judge(arguments.protoc)
    write("validity.jsonl.gz", validity(protoc, 3000))
    if arguments.confluent:
        confluent = Judge(arguments.confluent)
        write("texts.jsonl.gz", texts(confluent, protoc, 300))
        write("pairs.jsonl.gz", pairs(confluent, protoc, 2500))
        confluent.stop()
    protoc.stop()


if __name__ == "__main__":
    main()
