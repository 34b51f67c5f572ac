"""Asks a schema registry whether ids are registered under the subjects of topics. Blocks: runs in a thread."""

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.broker.schema_validation.schema_ids_state import Failed, Known, Question, Refused, Verdict
from ottla.metadata.configs.schema_settings import SubjectStrategy

if TYPE_CHECKING:
    from ottla.registry.serde.registry_client import RegistryClient

_TIMEOUT_SECONDS: Final = 3.0
_NOT_FOUND: Final = 404
_NOT_FOUND_CODES: Final = range(40400, 40500)
_DEFAULT_CONTEXT: Final = "."
_SHOWN_SUBJECTS_MAX: Final = 3


class RegistryQuestions:
    """Questions to the instances of one registry. Threads may share it."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = urls
        self._lock = threading.Lock()
        self._client: RegistryClient | None = None

    def answer(self, question: Question) -> Verdict:
        """Whether the id of the question is valid."""
        try:
            client = self._connected()
        except ImportError as error:
            return Failed(f"schema validation needs {error.name}; install it with: pip install 'ottla[registry]'")
        from ottla.registry.serde.errors import RegistryAnswerError

        try:
            return _answer(client, question)
        except RegistryAnswerError as error:
            # Any web server answers 404; only a registry says with a code of its own that it has no such schema.
            if error.status == _NOT_FOUND and error.error_code in _NOT_FOUND_CODES:
                return _not_registered(question)
            return Failed(f"the schema registry refused to look up schema {_id_text(question.frame)}: {error}")
        except Exception as error:
            # A question without an answer would hold batches for ever.
            return Failed(str(error) or type(error).__name__)

    def _connected(self) -> "RegistryClient":
        from ottla.registry.serde.registry_client import RegistryClient

        with self._lock:
            if self._client is None:
                self._client = RegistryClient(
                    self._urls, timeout_seconds=_TIMEOUT_SECONDS, retries=len(self._urls), cache_size=100
                )
            return self._client

    def close(self) -> None:
        """Closes the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close()


def _answer(client: "RegistryClient", question: Question) -> Verdict:
    from ottla.registry.serde.registry_calls import subjects_of_id

    subjects: list[str] = []
    expected: list[str] = []
    for schema_id, context in _ids(client, question.frame):
        found = client.ask(subjects_of_id(schema_id, context))
        subjects += found
        expected = expected or list(_expected(client, question, schema_id, context))
    if any(each in subjects for each in expected):
        return Known.VALID
    if not subjects:
        return _not_registered(question)
    shown = " or ".join(expected[:_SHOWN_SUBJECTS_MAX])
    where = f"under subject {shown}" if shown else "under the name of its record, because it has none"
    return Refused(f"schema {_id_text(question.frame)} is not registered {where}")


def _not_registered(question: Question) -> Refused:
    return Refused(f"schema {_id_text(question.frame)} is not registered")


def _ids(client: "RegistryClient", frame: bytes) -> Iterator[tuple[int, str | None]]:
    """The ids that the frame stands for, each with the context where it has that id."""
    if frame[0] == 0:
        yield int.from_bytes(frame[1:], "big"), None
        return
    from ottla.registry.serde.registry_calls import ids_of_guid

    for found in client.ask(ids_of_guid(UUID(bytes=frame[1:]))):
        yield found.id, None if found.context == _DEFAULT_CONTEXT else f":{found.context}:"


def _expected(client: "RegistryClient", question: Question, schema_id: int, context: str | None) -> Iterator[str]:
    """The subjects of which one must have the schema."""
    if question.strategy is SubjectStrategy.TOPIC:
        yield f"{question.topic}-{'key' if question.is_key else 'value'}"
        return
    from ottla.registry.serde.record_names import record_names

    prefix = f"{question.topic}-" if question.strategy is SubjectStrategy.TOPIC_RECORD else ""
    for name in record_names(client, client.schema_by_id(schema_id, context).schema, context):
        yield prefix + name


def _id_text(frame: bytes) -> str:
    return str(int.from_bytes(frame[1:], "big")) if frame[0] == 0 else str(UUID(bytes=frame[1:]))
