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
        (".", "folder"),
        ("..", "folder"),
        ("a" * 250, "at most 249 characters, this one has 250"),
        ("a b", "has others"),
        ("a/b", "has others"),
        ("a\n", "has others"),
        ("ä", "has others"),
        ("٣", "has others"),
        ("a\0", "has others"),
    ],
)
def test_illegal(name: str, fault: str) -> None:
    assert fault in (fault_of_name(name) or "")


def test_collisions() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")
