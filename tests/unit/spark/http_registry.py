"""A schema registry for tests: real HTTP, Confluent's answers, a few schemas, and failures on request."""

import io
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro

FIRST = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "string"}]}
SECOND = {"type": "record", "name": "O", "fields": [{"name": "n", "type": "long"}, {"name": "id", "type": "string"}]}
ADDRESS = {"type": "record", "name": "shop.Address", "fields": [{"name": "street", "type": "string"}]}
NAMING = {
    "type": "record",
    "name": "shop.P",
    "fields": [{"name": "id", "type": "string"}, {"name": "home", "type": "shop.Address"}],
}
JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "n": {"type": ["null", "integer"]},
        "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


class Registry(ThreadingHTTPServer):
    """Answers as Confluent's registry does; `failures` are statuses to answer first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers: dict[str, dict[str, Any]] = {
            "/schemas/ids/1": {"schema": json.dumps(FIRST)},
            "/schemas/ids/2": {"schema": json.dumps(SECOND)},
            "/schemas/ids/3": {"schema": json.dumps(JSON_SCHEMA), "schemaType": "JSON"},
            "/schemas/ids/4": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
            "/schemas/ids/5": {
                "schema": json.dumps(NAMING),
                "references": [{"name": "shop.Address", "subject": "address", "version": 1}],
            },
            "/schemas/ids/6": {"schema": "{"},
            "/subjects/address/versions/1?deleted=true": {"schema": json.dumps(ADDRESS), "id": 9},
            "/subjects/orders-value/versions/latest": {"schema": json.dumps(SECOND), "id": 2},
            "/subjects/events-value/versions/latest": {"schema": json.dumps(JSON_SCHEMA), "schemaType": "JSON"},
        }
        self.failures: list[int] = []
        self.credentials: str | None = None
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.failures:
            self._send(self.server.failures.pop(0), {"error_code": 50001, "message": "for the moment"})
        elif self.server.credentials is not None and self.headers.get("Authorization") != self.server.credentials:
            self._send(401, {"error_code": 401, "message": "who are you"})
        elif self.path in self.server.answers:
            self._send(200, self.server.answers[self.path])
        else:
            self._send(404, {"error_code": 40403, "message": "Schema not found"})

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@contextmanager
def running_registry() -> Iterator[Registry]:
    """A registry, until it is left."""
    registry = Registry()
    thread = threading.Thread(target=registry.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        registry.shutdown()
        thread.join()
        registry.server_close()


def framed(schema_id: int, body: bytes) -> bytes:
    """A value with Confluent's frame."""
    return struct.pack(">bI", 0, schema_id) + body


def avro(schema: Any, row: Any) -> bytes:
    """A row as Avro, without frame or header."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()
