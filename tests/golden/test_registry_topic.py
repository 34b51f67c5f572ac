"""A topic that Confluent's registry wrote: read, written again in the same bytes, and served with the same answers.

`registry/confluent_8_5_schemas_topic.json` has the records of `_schemas` after some hundred random requests to
Confluent's registry (version 8.5), with references, contexts, soft and permanent deletions, imports, configs and modes,
and what that registry answered in the end, after a restart.
"""

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from ottla.registry.schemas.languages import LANGUAGES
from ottla.registry.state import configs, lookups, modes
from ottla.registry.state.record_formats import NoopKey, decode_record
from ottla.registry.state.registry_image import RegistryImage

GOLDEN: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "registry" / "confluent_8_5_schemas_topic.json").read_text()
)
RECORDS: Final = [(key.encode(), value and value.encode(), timestamp) for key, value, timestamp in GOLDEN["records"]]


def image_of(records: list[tuple[bytes, bytes | None, int]]) -> RegistryImage:
    image = RegistryImage(LANGUAGES)
    for key, value, timestamp in records:
        assert image.apply(decode_record(key, value), timestamp) is None
    image.check()
    return image


def test_records_are_written_in_the_same_bytes() -> None:
    for key, value, _ in RECORDS:
        record = decode_record(key, value)
        assert (key, None if isinstance(record.key, NoopKey) else value) == record.encode()


@pytest.mark.parametrize("path", GOLDEN["answers"])
@pytest.mark.parametrize("compact", [False, True])
def test_answers_are_the_same(path: str, compact: bool) -> None:
    last = {key: position for position, (key, _, _) in enumerate(RECORDS)}
    records = [item for position, item in enumerate(RECORDS) if not compact or last[item[0]] == position]
    image = image_of([item for item in records if not compact or item[1] is not None])
    assert GOLDEN["answers"][path] == msgspec.json.decode(msgspec.json.encode(answer(image, path)))


def answer(image: RegistryImage, path: str) -> Any:
    url = urlsplit(path)
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    deleted, prefix = query.get("deleted") == "true", query.get("subjectPrefix", "")
    match url.path.split("/")[1:]:
        case ["subjects"]:
            return lookups.list_subjects(image, deleted=deleted)
        case ["subjects", subject, "versions", version, "referencedby"]:
            return lookups.referenced_by(image, subject, version, deleted=deleted)
        case ["schemas"]:
            latest_only = query.get("latestOnly") == "true"
            return lookups.list_schemas(image, prefix=prefix, deleted=deleted, latest_only=latest_only)
        case ["contexts"]:
            return lookups.list_contexts(image)
        case ["config"]:
            return configs.get_config(image)
        case ["mode"]:
            return modes.get_mode(image)
    raise ValueError(path)
