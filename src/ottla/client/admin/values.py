"""What an administrator hands over and gets back: wishes, and the outcomes of many at once.

What was found (descriptions, listings) is defined beside the requests that find it, in `admin_requests.py`,
`config_requests.py`, `group_admin.py`, `transaction_admin.py` and `partition_moves.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ottla.client.admin.config_requests import ResourceType
from ottla.client.errors import AnswerError
from ottla.model.errors import MisuseError, OttlaError

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Counts of -1 are the broker's own; with `replica_assignments` (partition: broker ids, the
    preferred leader first) both follow from it."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    topic_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic shall have in all, and, if wanted, the brokers of each that is new."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, broker or group, and the configs that are meant; two of the same type and name are the same resource.

    `configs` is, for changing, a mapping of names to values, where None takes the override away; for asking, names,
    or None for all. A broker's name is its id, and "" means all brokers.
    """

    resource_type: ResourceType
    name: str
    configs: Mapping[str, str | None] | Sequence[str] | None = field(default=None, compare=False)

    @property
    def names(self) -> list[str] | None:
        """The configs that are meant, None for all."""
        return None if self.configs is None else list(self.configs)

    @property
    def changes(self) -> Mapping[str, str | None]:
        """What to change; raises `MisuseError` if nothing was said."""
        if not isinstance(self.configs, Mapping) or not self.configs:
            raise MisuseError(
                f"{self.resource_type.name.lower()} {self.name}: say what to change, as in "
                'ConfigResource(ResourceType.TOPIC, "name", {"retention.ms": "60000"})'
            )
        return self.configs


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member of a classic group, by its own id or by the name it keeps across restarts."""

    member_id: str = ""
    group_instance_id: str | None = None

    def __str__(self) -> str:
        return self.group_instance_id or self.member_id


class Outcomes(Mapping[K, V], Generic[K, V]):
    """What became of each of many wishes: a mapping, in which looking up one that failed raises its error.

    `errors` has those that failed. Iterating and counting sees the others only.
    """

    def __init__(self, found: Mapping[K, V], errors: Mapping[K, OttlaError] | None = None) -> None:
        self._found = dict(found)
        self.errors: Mapping[K, OttlaError] = dict(errors or {})

    def __getitem__(self, key: K) -> V:
        if key in self.errors:
            raise self.errors[key]
        return self._found[key]

    def __contains__(self, key: object) -> bool:
        return key in self._found

    def __iter__(self) -> Iterator[K]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"Outcomes({self._found!r}, errors={self.errors!r})"

    def checked(self) -> "Outcomes[K, V]":
        """Itself if nothing failed; else raises: the one error if there was one wish, else `PartlyFailedError`."""
        if not self.errors:
            return self
        if len(self.errors) == 1 and not self._found:
            raise next(iter(self.errors.values()))
        raise PartlyFailedError(self)


class PartlyFailedError(OttlaError):
    """Some of several wishes failed. `outcomes` tells them apart; `error_codes` has the broker's codes, by wish."""

    def __init__(self, outcomes: Outcomes[K, V]) -> None:
        failed = "; ".join(str(error) for error in list(outcomes.errors.values())[:_TOLD_MAX])
        more = len(outcomes.errors) - _TOLD_MAX
        super().__init__(
            f"{len(outcomes.errors)} of {len(outcomes.errors) + len(outcomes)} failed: {failed}"
            + (f"; and {more} more" if more > 0 else "")
        )
        self.outcomes = outcomes
        self.error_codes = {
            key: error.error_code for key, error in outcomes.errors.items() if isinstance(error, AnswerError)
        }


_TOLD_MAX = 5
