"""Which names a topic may have."""

import pytest

from ottla.controller.topic_names import collision_key, fault_of_name


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "__consumer_offsets", "a" * 249, "-"])
def test_legal(name: str) -> None:
    assert fault_of_name(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty"),
        (".", "must not be '.'"),
        ("..", "must not be '..'"),
        ("a" * 250, "at most 249 characters, not 250"),
        ("a b", "is not a valid topic name"),
        ("a/b", "is not a valid topic name"),
        ("a\n", "is not a valid topic name"),
        ("ä", "is not a valid topic name"),
        ("٣", "is not a valid topic name"),
        ("a\0", "is not a valid topic name"),
    ],
)
def test_illegal(name: str, fault: str) -> None:
    assert fault in (fault_of_name(name) or "")


def test_collisions() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")
