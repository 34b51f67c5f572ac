"""One run: loads, faults one after the other, and in the end a verdict and a table."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.chaos.arena import LAG_SECONDS, SESSION_SECONDS, Arena
from tests.chaos.checker import Violation, check
from tests.chaos.faults import Fault
from tests.chaos.history import Event
from tests.chaos.recovery import Outage, outage
from tests.chaos.stalls import Stalls

WRITABLE_SECONDS: Final = max(SESSION_SECONDS, LAG_SECONDS) + 5.0
"""How soon after a single fault every partition must take records again: a follower that the leader does not hear, and
whose session lives on, leaves the ISR for its lag. Time in which the machine stands still does not count."""
HEAD: Final = f"{'seconds':40} {'silent':>6} {'client':>6} {'sync':>6}"
"""The longest time without an acknowledgement on a partition; to one client; from the healing until all in sync."""
CALM_SECONDS: Final = 2.0
"""Between two faults, so that clients do something without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault that was done, and when."""

    fault: Fault
    at: float
    healed: float
    whole: float
    """When all replicas were in sync again."""
    stalls: Stalls


def undergo(arena: Arena, faults: Iterable[Fault]) -> list[Struck]:
    """Does the faults one after the other, each when all is well after the one before."""
    done: list[Struck] = []
    with Stalls() as stalls:
        for fault in faults:
            time.sleep(CALM_SECONDS)  # the clients show that they are well
            at = time.monotonic()
            print(f"{at:.1f} {fault.name}", flush=True)
            with fault.strike(arena):
                time.sleep(fault.lasts)  # what the fault is
            healed = time.monotonic()
            arena.cluster.wait_brokers()
            arena.cluster.wait_in_sync()
            done.append(Struck(fault=fault, at=at, healed=healed, whole=time.monotonic(), stalls=stalls))
        time.sleep(CALM_SECONDS)  # the clients show that they are well
    return done


def verdict(arena: Arena, struck: Iterable[Struck]) -> list[Violation]:
    """Ends the loads, prints how it went, and answers what is wrong."""
    events = arena.end_loads()
    contents = arena.contents()
    found = check(events, contents)
    print(_counts(events))
    print("records in the end: " + ", ".join(f"{at} {len(lines):,}" for at, lines in sorted(contents.items())))
    print(HEAD)
    for each in struck:
        started = each.healed if each.fault.counts_from_healing else each.at
        until = each.whole + CALM_SECONDS
        seconds, stalled = outage(events, started, until), each.stalls.seconds(started, until)
        print(_row(each, seconds) + (f"  the machine stood still for {stalled:.1f} s" if stalled else ""))
        if seconds.cluster - stalled > WRITABLE_SECONDS:
            text = f"{each.fault.name}: a partition could not be written for {seconds.cluster:.1f} s"
            found.append(Violation("writable again", text))
    for wrong in found[:20]:
        print(f"{wrong.promise}: {wrong.text}")
    return found


def _row(struck: Struck, seconds: Outage) -> str:
    return (
        f"{struck.fault.name:40} {seconds.cluster:6.1f} {seconds.clients:6.1f} {struck.whole - struck.healed:6.1f}"
        f"{'  counted from the healing' if struck.fault.counts_from_healing else ''}"
    )


def _counts(events: list[Event]) -> str:
    kinds: dict[str, int] = {}
    for event in events:
        kinds[event.what] = kinds.get(event.what, 0) + 1
    kinds["records read"] = sum(len(event.records) for event in events)
    return ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items()))
