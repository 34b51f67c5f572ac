"""The values that users pass to the admin clients, and `Outcomes`, which the methods for several items return.

Descriptions and listings are defined beside the requests that return them, in the `*_requests.py` modules.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ottla.client.admin.config_requests import ResourceType
from ottla.client.arguments import check_fields
from ottla.client.errors import AnswerError
from ottla.model.errors import MisuseError, OttlaError

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. A count of -1 is the broker's default.

    `replica_assignments` lists the brokers of each partition, the preferred leader first; leave both counts at -1 then.
    Raises `ArgumentError` for a field of the wrong type.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    topic_configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of partitions of a topic, and optionally the brokers of each new partition.

    Raises `ArgumentError` for a field of the wrong type.
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, broker or group, and its configs to describe or alter. The name of a broker is its id, "" all brokers.

    `configs` maps names to values for altering, where None removes an override. For describing it lists names; None
    means all. It does not count for equality. A resource type may also be its number in the protocol. Raises
    `ArgumentError` for a field of the wrong type.
    """

    resource_type: ResourceType
    name: str
    configs: Mapping[str, str | None] | Sequence[str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if type(self.resource_type) is int and self.resource_type in set(ResourceType):
            object.__setattr__(self, "resource_type", ResourceType(self.resource_type))
        check_fields(self)

    @property
    def names(self) -> list[str] | None:
        """The names in `configs`, None for all configs."""
        return None if self.configs is None else list(self.configs)

    @property
    def changes(self) -> Mapping[str, str | None]:
        """The values to set. Raises `MisuseError` if there are none."""
        if not isinstance(self.configs, Mapping) or not self.configs:
            raise MisuseError(
                f"{self.resource_type.name.lower()} {self.name}: configs must map names to new values, as in "
                'ConfigResource(ResourceType.TOPIC, "name", {"retention.ms": "60000"})'
            )
        return self.configs


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member of a classic group, identified by its member id or, if it is static, by its instance id.

    Raises `ArgumentError` for a field of the wrong type.
    """

    member_id: str = ""
    group_instance_id: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def __str__(self) -> str:
        return self.group_instance_id or self.member_id


class Outcomes(Mapping[K, V], Generic[K, V]):
    """The results of an operation on several items: a mapping in which looking up a failed item raises its error.

    `errors` has the failed items. Iterating and `len` cover the successful ones only.
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
        """Itself if nothing failed. Raises the error if there was one item, else `PartlyFailedError`."""
        if not self.errors:
            return self
        if len(self.errors) == 1 and not self._found:
            raise next(iter(self.errors.values()))
        raise PartlyFailedError(self)


class PartlyFailedError(OttlaError):
    """Some of several items failed. `outcomes` has all results; `error_codes` has the broker's codes by item."""

    def __init__(self, outcomes: Outcomes[K, V]) -> None:
        failed = "; ".join(str(error) for error in list(outcomes.errors.values())[:_ERRORS_SHOWN_MAX])
        more = len(outcomes.errors) - _ERRORS_SHOWN_MAX
        super().__init__(
            f"{len(outcomes.errors)} of {len(outcomes.errors) + len(outcomes)} failed: {failed}"
            + (f"; and {more} more" if more > 0 else "")
        )
        self.outcomes = outcomes
        self.error_codes = {
            key: error.error_code for key, error in outcomes.errors.items() if isinstance(error, AnswerError)
        }


_ERRORS_SHOWN_MAX = 5
