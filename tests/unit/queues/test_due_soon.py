"""Entries that move to what is due soon, against a sorted list."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from ottla.queues.due_index import DueIndex
from ottla.queues.due_soon import DueSoon
from ottla.sim.disk import SimDisk

STEPS = st.lists(
    st.tuples(st.just("add"), st.lists(st.integers(0, 30), max_size=6))
    | st.tuples(st.just("move"), st.integers(0, 40), st.integers(1, 5))
    | st.tuples(st.just("pop"), st.integers(0, 40), st.integers(1, 5)),
    max_size=40,
)


@given(STEPS)
def test_entries_come_in_order_whatever_was_moved(steps: list[tuple[object, ...]]) -> None:
    due_soon = DueSoon(DueIndex(lambda: SimDisk().open_scratch("/"), memory_entries_max=6, block_entries=2))
    model: list[tuple[int, int]] = []
    next_offset = 0
    for step in steps:
        for now in (0, 15, 30):
            assert sum(due <= now for due, _ in model) == due_soon.count_due(now)
        match step:
            case ("add", list(dues)):
                offsets = range(next_offset, next_offset + len(dues))
                next_offset += len(dues)
                due_soon.add(array("q", dues), array("q", offsets))
                model = sorted([*model, *zip(dues, offsets, strict=True)])
            case ("move", int(until), int(limit)):
                moved = due_soon.move(until, limit)
                assert set(moved) <= {offset for due, offset in model if due <= until}
            case ("pop", int(now), int(limit)):
                wanted = [entry for entry in model if entry[0] <= now][:limit]
                assert list(zip(*due_soon.pop_due(now, limit), strict=True)) == wanted
                model = model[len(wanted) :]
        assert due_soon.next_due() == (model[0][0] if model else None)
        assert len(due_soon) == len(model)
