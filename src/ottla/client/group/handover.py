"""A change of the partitions that a consumer has, decided by its group and carried out between two polls."""

from dataclasses import dataclass

from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """One change. First `lost` and `revoked` are given up, then `added` are taken; the listener is called for each."""

    assigned: frozenset[TopicPartition]
    """All partitions that the consumer has afterwards."""
    revoked: frozenset[TopicPartition] = frozenset()
    """Given up while still owned: offsets can be committed before."""
    lost: frozenset[TopicPartition] = frozenset()
    """Already taken away, perhaps owned by another member: commits would be refused."""
    added: frozenset[TopicPartition] = frozenset()
    is_new_assignment: bool = False
    """Whether the group has just assigned partitions; the listener is called even if nothing changes."""

    @classmethod
    def to(cls, assigned: frozenset[TopicPartition], owned: frozenset[TopicPartition]) -> "Handover":
        """The change from what is owned to a new assignment."""
        return cls(assigned=assigned, revoked=owned - assigned, added=assigned - owned, is_new_assignment=True)
