"""Ids of topics, clusters and data dirs as text."""

from uuid import UUID

import pytest

from ottla.model.base64_ids import id_text, new_id, parse_id
from ottla.sim.random import SimRandom

ID = "ABCDEFGHIJKLMNOPQRSTUA"


def test_ids_are_random_and_never_look_like_an_option() -> None:
    random = SimRandom(3)
    ids = [new_id(random.randbytes) for _ in range(500)]
    assert 500 == len(set(ids))
    assert {22} == {len(id_text(each)) for each in ids}
    assert not [each for each in ids if id_text(each).startswith("-")]
    assert {4} == {each.version for each in ids}
    assert ids == [parse_id(id_text(each)) for each in ids]
    assert "AAAAAAAAAAAAAAAAAAAABQ" == id_text(UUID(int=5))


@pytest.mark.parametrize(
    "text", ["", "topic-id", "ABCDEFGHIJKLMNOPQRSTUB", f"{ID}A", "ü" * 22, "ABCDEFGHIJKLMNOPQRST==", "?" * 22]
)
def test_what_is_not_an_id(text: str) -> None:
    assert parse_id(ID) is not None
    assert parse_id(text) is None
