"""Deadlines by key: the earliest first, moved ones at their new time, cleared ones never."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordination.runtime.deadlines import Deadlines


def test_earliest_first_then_in_order() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, deadline_ms in (("a", 5), ("b", 3), ("c", 5)):
        deadlines.set(key, deadline_ms)
    assert [None, "b", None] == [deadlines.pop(2), deadlines.pop(3), deadlines.pop(4)]
    assert ["a", "c", None] == [deadlines.pop(9), deadlines.pop(9), deadlines.pop(9)]
    assert None is deadlines.next()


def test_a_deadline_that_is_moved_passes_at_its_new_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, deadline_ms in (("a", 5), ("b", 7), ("c", 4), ("b", 3), ("c", 9)):
        deadlines.set(key, deadline_ms)
    assert [None, "b", None, "a", None, "c"] == [deadlines.pop(now_ms) for now_ms in (2, 3, 4, 5, 8, 9)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.sampled_from("abcd"), st.integers(0, 20)),
            st.tuples(st.just("clear"), st.sampled_from("abcd"), st.just(0)),
            st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
            st.tuples(st.just("shift"), st.just(""), st.integers(-20, 20)),
        )
    )
)
def test_like_a_dictionary(steps: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for step, key, at in steps:
        match step:
            case "set":
                deadlines.set(key, at)
                model[key] = at
            case "clear":
                deadlines.clear(key)
                model.pop(key, None)
            case "shift":
                deadlines.shift(at)
                model = {each: due + at for each, due in model.items()}
            case "pop":
                popped = deadlines.pop(at)
                earliest = min(model.values(), default=at + 1)
                if earliest > at:
                    assert None is popped
                else:
                    assert popped is not None
                    assert earliest == model.pop(popped)
        assert min(model.values(), default=None) == deadlines.next()
        assert set(model) == {each for each in "abcd" if each in deadlines}
