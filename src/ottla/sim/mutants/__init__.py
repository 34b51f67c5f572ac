"""Planted bugs that the simulator must find: they show that the checkers can fail.

`planted.py` has the bugs, `catching.py` a seed for each that catches it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from ottla.model.errors import MisuseError
from ottla.sim.mutants.planted import MUTANTS


@contextmanager
def applied(name: str | None) -> Iterator[None]:
    """Plants a bug for a while; None plants none."""
    if name is None:
        yield
        return
    if name not in MUTANTS:
        near = get_close_matches(name, MUTANTS, n=1)
        raise MisuseError(f"unknown mutant {name!r}; " + (f"did you mean {near[0]!r}?" if near else "see planted.py"))
    before: list[tuple[Any, str, Any]] = []
    try:
        for owner, attribute, change in MUTANTS[name].patches:
            old = vars(owner)[attribute]
            before.append((owner, attribute, old))
            setattr(owner, attribute, change(old))
        yield
    finally:
        for owner, attribute, old in reversed(before):
            setattr(owner, attribute, old)
