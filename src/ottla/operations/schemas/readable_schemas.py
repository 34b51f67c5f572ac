"""The text of a schema as people read and compare it: JSON with one value on each line, Protobuf as it is."""

import json


def readable(schema_type: str, text: str) -> str:
    """The text with line breaks; as it is if it is not JSON, or nested too deeply."""
    if schema_type == "PROTOBUF":
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
