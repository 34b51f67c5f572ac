"""Remembers the results of comparisons, so that a pair of schemas is compared once.

A comparison can take seconds. It is done where nothing waits for it (`schema_checks.py`); the request that needs the
result then finds it here.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.registry.schemas.parsed_schema import Incompatibility

_RESULTS_MAX: Final = 10_000

_Key = tuple[bytes, bytes, bool]


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as text, with the texts of its references by name."""

    type: str
    text: str
    references: Mapping[str, str]

    @property
    def fingerprint(self) -> bytes:
        """Equal for equal schemas only."""
        found = hashlib.sha256()
        for part in (self.type, self.text, *(each for item in self.references.items() for each in item)):
            data = part.encode(errors="surrogatepass")
            found.update(len(data).to_bytes(8, "big"))
            found.update(data)
        return found.digest()


class Comparisons:
    """The results of the last comparisons. Several threads may use it: at worst a pair is compared twice."""

    def __init__(self) -> None:
        self._results: dict[_Key, Sequence[Incompatibility]] = {}

    def has(self, reader: bytes, writer: bytes, *, lenient: bool) -> bool:
        """Whether the schemas with these fingerprints were compared."""
        return (reader, writer, lenient) in self._results

    def find(
        self, reader: bytes, writer: bytes, *, lenient: bool, compare: Callable[[], Sequence[Incompatibility]]
    ) -> Sequence[Incompatibility]:
        """The result for the schemas with these fingerprints; `compare` is called if it is not known."""
        key = (reader, writer, lenient)
        found = self._results.get(key)
        if found is None:
            found = self._results[key] = compare()
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread removes entries too
                while len(self._results) > _RESULTS_MAX:
                    del self._results[next(iter(self._results))]
        return found
