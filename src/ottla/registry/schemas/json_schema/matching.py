"""The largest set of pairs between two groups in which no member occurs twice (a maximum bipartite matching)."""

from collections import deque
from collections.abc import Callable, Sequence


def matching_size(partners: Sequence[Sequence[int]], *, spend: Callable[[int], None]) -> int:
    """How many members of the left group find a partner of their own.

    `partners` has for each of them the possible partners in the right group. `spend` is told the steps that were
    taken, and ends the search by raising.
    """
    taken: dict[int, int] = {}  # partner: the member that has it
    unmatched = []
    for member, candidates in enumerate(partners):
        free = next((candidate for candidate in candidates if candidate not in taken), None)
        if free is None:
            unmatched.append(member)
        else:
            taken[free] = member
    return len(partners) - sum(not _found_by_moving(member, partners, taken, spend) for member in unmatched)


def _found_by_moving(
    member: int, partners: Sequence[Sequence[int]], taken: dict[int, int], spend: Callable[[int], None]
) -> bool:
    """Gives `member` a partner by moving others to another of their partners, if that is possible."""
    reached_from: dict[int, int] = {}
    waiting = deque([member])
    while waiting:
        current = waiting.popleft()
        spend(len(partners[current]))
        for candidate in partners[current]:
            if candidate in reached_from:
                continue
            reached_from[candidate] = current
            if candidate in taken:
                waiting.append(taken[candidate])
                continue
            _move(candidate, member, reached_from, taken)
            return True
    return False


def _move(free: int, member: int, reached_from: dict[int, int], taken: dict[int, int]) -> None:
    had = {owner: partner for partner, owner in taken.items()}
    partner = free
    while True:
        owner = reached_from[partner]
        taken[partner] = owner
        if owner == member:
            return
        partner = had[owner]
