"""What is known about schema ids: which are valid for a topic, which are not, and for how long that holds. Pure."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ottla.metadata.configs.schema_settings import SubjectStrategy

VALID_IDS_MAX: Final = 10_000
"""How many valid ids are remembered; those that were not used for longest are asked for again."""
VALID_SECONDS: Final = 300.0
"""After this, a valid id that is used is asked for again, and stays valid meanwhile: its schema may be deleted."""
VALID_RETRY_SECONDS: Final = 30.0
"""The same after a question about a valid id that could not be answered."""
REFUSED_IDS_MAX: Final = 1_000
REFUSED_SECONDS: Final = 2.0
"""After this, an id that is not valid is asked for again: it may have been registered."""
FAILED_SECONDS: Final = 0.5
"""After a question that could not be answered, the registry is asked again."""


class Question(NamedTuple):
    """Whether a schema belongs to a subject of a topic."""

    frame: bytes
    """The magic byte and the id or GUID, as they are in the record."""
    topic: str
    is_key: bool
    strategy: SubjectStrategy


class Known(Enum):
    """The verdict for an id that may be used."""

    VALID = "valid"


@dataclass(frozen=True, slots=True)
class Refused:
    """The registry does not have the id, or not under the topic's subject."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The registry could not be asked."""

    reason: str


Verdict = Known | Refused | Failed


class SchemaIdsState:
    """Remembers verdicts. Times are seconds of any clock that does not go back."""

    def __init__(self) -> None:
        self._valid: OrderedDict[Question, float] = OrderedDict()
        """With the time when each is to be asked for again."""
        self._refused: OrderedDict[Question, tuple[float, Refused]] = OrderedDict()
        self._failed: dict[Question, tuple[float, Failed]] = {}

    def verdict(self, question: Question, now: float) -> Verdict | None:
        """What is known; None if the registry must be asked."""
        if question in self._valid:
            self._valid.move_to_end(question)
            return Known.VALID
        for verdicts in (self._refused, self._failed):
            known = verdicts.get(question)
            if known is not None and now < known[0]:
                return known[1]
        return None

    def is_due(self, question: Question, now: float) -> bool:
        """Whether a valid id is to be asked for again."""
        return now >= self._valid.get(question, math.inf)

    def on_answer(self, question: Question, verdict: Verdict, now: float) -> None:
        """Remembers the answer."""
        self._failed.pop(question, None)
        self._refused.pop(question, None)
        match verdict:
            case Known.VALID:
                self._valid[question] = now + VALID_SECONDS
                if len(self._valid) > VALID_IDS_MAX:
                    self._valid.popitem(last=False)
            case Refused():
                self._valid.pop(question, None)
                self._refused[question] = now + REFUSED_SECONDS, verdict
                if len(self._refused) > REFUSED_IDS_MAX:
                    self._refused.popitem(last=False)
            case Failed() if question in self._valid:
                self._valid[question] = now + VALID_RETRY_SECONDS
            case Failed():
                self._failed = {each: known for each, known in self._failed.items() if now < known[0]}
                self._failed[question] = now + FAILED_SECONDS, verdict
