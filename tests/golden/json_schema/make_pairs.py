"""Makes the files of this folder again, from the command that asks Confluent's classes.

    python -m tests.golden.json_schema.make_pairs COMMAND [ARGUMENT ...]

The command reads a line of JSON for each pair, `{"schema": TEXT, "writer": TEXT}`, and answers it with a line of JSON:
`canonical` and `normalized` (the texts of `JsonSchema` and of its normalized copy), `strict` and `lenient` (the
differences that break compatibility under each policy, each as `TYPE PATH`), or `strict_error` and `lenient_error` if
the comparison threw an exception. A small Java program around `JsonSchema` and `SchemaDiff` does that.

`pairs.jsonl.xz` has generated pairs and their verdicts, `texts.json` texts of schemas and what becomes of them. Pairs
that show a known disagreement are left out, by what the schemas look like and not by what our code finds:
`disagreements.json` has an example of each, with the verdict of Confluent's classes, ours, and the reason.
"""

import json
import lzma
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.golden.json_schema.schema_pairs import DRAFTS, SchemaPairs

HERE: Final = Path(__file__).parent
PAIRS_PER_DRAFT: Final = 1000
SEED: Final = 1
VERDICTS: Final = ("strict", "lenient")


def _modern(members: str) -> str:
    return f'{{"$schema":"{DRAFTS["2020-12"]}",{members}}}'


def _draft_4(members: str) -> str:
    return f'{{"$schema":"{DRAFTS["4"]}",{members}}}'


TEXTS: Final = (
    ' { "type" : "string" ,\n"minLength" : 1 } ',
    "true",
    "false",
    '{"b":{"z":1,"a":[{"y":1,"x":2}]},"a":1,"B":2,"é":3,"\U0001f600":4,"\uff5e":5}',
    '{"x":1.0,"y":-0.0,"z":1e5,"w":-0,"v":1.10,"u":1E400,"t":1e-7,"s":0.0000001,"r":0.000001,"q":12345678901234567890}',
    '{"x":0e5,"y":0.00e-3,"z":1.50E+3,"w":-1.5e-10,"v":100,"u":1E+2}',
    '{"x":"\\u001f\\u007f\\u2028\\/\\ud83d\\ude00\\u00e9\\b\\f\\n\\r\\t\\\\\\"","y":"é/"}',
    '{"a":1,"b":2,"a":3}',
    '{"x-limit":NaN,"x-other":-Infinity}',
    '{"minimum":NaN}',
    "[]",
    "1",
    "null",
    '"string"',
    "",
    "{",
    "{'a':1}",
    '{"a":1,}',
    '{"a":01}',
    '{"type":"text"}',
    '{"type":7}',
    '{"type":["string",7]}',
    '{"type":[]}',
    '{"properties":[]}',
    '{"properties":{"a":1}}',
    '{"properties":{"a":null}}',
    '{"items":1}',
    '{"items":[1]}',
    '{"items":true}',
    _draft_4('"items":true'),
    _draft_4('"additionalItems":true'),
    _draft_4('"exclusiveMinimum":true'),
    _draft_4('"exclusiveMinimum":1'),
    _draft_4('"contains":1'),
    _draft_4('"id":1'),
    '{"exclusiveMinimum":true}',
    '{"minLength":2.0}',
    '{"minLength":3000000000}',
    '{"minLength":"2"}',
    '{"minLength":-1}',
    '{"multipleOf":0}',
    '{"required":"a"}',
    '{"required":[1]}',
    '{"enum":1}',
    '{"enum":[]}',
    '{"title":1}',
    '{"description":1}',
    '{"$id":1}',
    '{"$schema":1}',
    '{"$schema":"http://json-schema.org/draft-03/schema#","type":"string"}',
    '{"readOnly":1}',
    '{"allOf":{}}',
    '{"allOf":[]}',
    '{"allOf":[1]}',
    '{"not":1}',
    '{"dependencies":{"a":1}}',
    '{"dependencies":{"a":[1]}}',
    '{"dependencies":{"a":true}}',
    '{"if":1}',
    '{"then":1}',
    '{"definitions":{"a":{"type":"text"}}}',
    '{"$ref":"#/definitions/a","definitions":{"a":{"type":"text"}}}',
    '{"$ref":"#/definitions/a","definitions":{"a":{"type":"string"}},"type":"text"}',
    '{"$ref":"#/definitions/b","definitions":{"a":{"type":"string"}}}',
    '{"$ref":"#/$defs/a","definitions":{"a":{"type":"string"}}}',
    '{"$ref":"#/definitions/a","$defs":{"a":{"type":"string"}}}',
    '{"$ref":"#/definitions/a~1b%20c","definitions":{"a/b c":{"type":"string"}}}',
    '{"$ref":"#/allOf/0","allOf":[{"type":"string"}]}',
    '{"$ref":"#/allOf/1","allOf":[{"type":"string"}]}',
    '{"$ref":"#"}',
    '{"$ref":"#/"}',
    '{"$ref":1}',
    '{"$ref":"#named","definitions":{"a":{"$id":"#named"}}}',
    '{"$id":"http://a.example/b.json","properties":{"c":{"$ref":"d.json"}},"definitions":{"d":{"$id":"http://a.example/d.json"}}}',
    '{"properties":{"$ref":{"type":"string"}}}',
    '{"$ref":"other.json"}',
    _modern('"minLength":2.0'),
    _modern('"items":[{}]'),
    _modern('"multipleOf":0'),
    _modern('"then":{"type":7}'),
    _modern('"$defs":{"a":{"type":"text"}}'),
    _modern('"definitions":{"a":{"type":"text"}}'),
    _modern('"$ref":"#name","$defs":{"a":{"$anchor":"name"}}'),
    _modern('"$ref":"#eman","$defs":{"a":{"$anchor":"name"}}'),
    _modern('"$ref":"#/$defs/a","definitions":{"a":{}}'),
    _modern('"uniqueItems":1'),
    _modern('"deprecated":1'),
    _modern('"format":1'),
    _modern('"$anchor":1,"$id":1'),
    _modern('"dependentRequired":{"a":1}'),
    _modern('"dependencies":1'),
    _modern('"type":["string","text"]'),
)
"""Valid and invalid schemas, and texts that show how Jackson writes JSON."""


def asked(command: list[str], pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """The answers about pairs of a writer's and a reader's text."""
    questions = "\n".join(json.dumps({"writer": writer, "schema": reader}) for writer, reader in pairs)
    ran = subprocess.run(command, input=questions, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.split("\n") if line]


def generated() -> Iterator[tuple[Any, Any]]:
    """Pairs of a writer's and a reader's schema that show no known disagreement."""
    for draft in DRAFTS:
        source = SchemaPairs(SEED, draft)
        for _ in range(PAIRS_PER_DRAFT):
            pair = source.pair()
            if not any(shows_disagreement(schema, draft) for schema in pair):
                yield pair


def shows_disagreement(document: Any, draft: str) -> bool:
    """Whether a schema has what the two checkers are known to judge differently."""
    definitions = {**document.get("definitions", {}), **document.get("$defs", {})}
    if any(isinstance(value, dict) and "$ref" in value for value in definitions.values()):
        return True  # a reference to a reference
    modern = draft.startswith("20")
    for schema in _objects(document):
        if "exclusiveMaximum" in schema or {"dependentRequired", "dependentSchemas"} <= schema.keys():
            return True
        if modern and isinstance(schema.get("type"), list) and len(schema) > 2:
            return True
        hidden = {"unevaluatedItems", "unevaluatedProperties", "contains"} & schema.keys()
        if modern and hidden and {"$defs", "connect.type"} & schema.keys():
            return True
        if modern and "again" in schema.get("properties", {}):
            return True
    return False


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from _objects(child)
    elif isinstance(value, list):
        for child in value:
            yield from _objects(child)


def main(command: list[str]) -> None:
    """Asks about all pairs and writes the answers."""
    pairs = [(json.dumps(writer), json.dumps(reader)) for writer, reader in generated()]
    lines = []
    for (writer, reader), answer in zip(pairs, asked(command, pairs), strict=True):
        if set(VERDICTS) <= answer.keys():
            verdict = {name: answer[name] for name in VERDICTS}
            lines.append(json.dumps({"writer": json.loads(writer), "reader": json.loads(reader), **verdict}))
    (HERE / "pairs.jsonl.xz").write_bytes(lzma.compress("\n".join(lines).encode(), preset=9))
    print(f"{len(lines)} pairs of {len(DRAFTS) * PAIRS_PER_DRAFT}")

    answers = asked(command, [("{}", text) for text in TEXTS])
    texts = [
        {"text": text}
        | ({"valid": False} if "error" in answer else {name: answer[name] for name in ("canonical", "normalized")})
        for text, answer in zip(TEXTS, answers, strict=True)
    ]
    (HERE / "texts.json").write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")

    path = HERE / "disagreements.json"
    cases = json.loads(path.read_text(encoding="utf-8"))
    questions = [(json.dumps(case["writer"]), json.dumps(case["reader"])) for case in cases]
    for case, answer in zip(cases, asked(command, questions), strict=True):
        case["theirs"] = answer.get("strict", answer.get("strict_error", answer.get("error", "")).split(":")[0])
    path.write_text(json.dumps(cases, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
