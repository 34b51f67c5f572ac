from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.registry.schemas.json_schema.matching import matching_size

PARTNERS = st.lists(st.lists(st.integers(0, 4), unique=True), max_size=5)


@given(PARTNERS)
def test_no_other_choice_matches_more(partners: list[list[int]]) -> None:
    best = max(
        sum(choice[member] in candidates for member, candidates in enumerate(partners))
        for choice in permutations(range(5), len(partners))
    )
    assert best == matching_size(partners, spend=lambda steps: None)


def test_the_search_ends_when_it_may_not_go_on() -> None:
    def refuse(steps: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        matching_size([[0], [0]], spend=refuse)
