"""The states of a broker's connection to a client, as a table: state and event to the next state. Pure.

`connection.py` reads and serves requests in state OPEN only. Back pressure is not a state: too many requests in flight,
or too many unsent bytes, are counted. TLS handshakes and logins are not states either: a connection is created when
they are complete (`tls_handshakes.py`, `authentication.py`).
"""

from enum import Enum, auto
from typing import Final

from ottla.model.invariants import InvariantViolation


class State(Enum):
    """What the connection does with requests."""

    OPEN = auto()
    """Requests are read and served."""
    STARVED = auto()
    """Nothing is read until there is receive memory."""
    DEFERRED = auto()
    """The next request was not admitted; it is offered again later."""
    MUTED = auto()
    """A quota was exceeded: nothing is read or served until the throttle time is over."""
    STARVED_MUTED = auto()
    """Both: there is no receive memory, and the throttle time is not over."""
    DRAINING = auto()
    """No request is served any more; the connection closes when the requests in flight are answered."""
    CLOSED = auto()
    """The socket is closed."""


class Event(Enum):
    """What happens to a connection."""

    STARVE = auto()
    FEED = auto()
    """There may be receive memory again."""
    DEFER = auto()
    RESUME = auto()
    """A deferred request may be admitted now."""
    MUTE = auto()
    UNMUTE = auto()
    DRAIN = auto()
    CLOSE = auto()


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.OPEN: {
        Event.STARVE: State.STARVED,
        Event.DEFER: State.DEFERRED,
        Event.RESUME: State.OPEN,
        Event.MUTE: State.MUTED,
        Event.DRAIN: State.DRAINING,
        Event.CLOSE: State.CLOSED,
    },
    State.STARVED: {
        Event.FEED: State.OPEN,
        Event.RESUME: State.STARVED,
        Event.MUTE: State.STARVED_MUTED,
        Event.DRAIN: State.DRAINING,
        Event.CLOSE: State.CLOSED,
    },
    State.DEFERRED: {
        Event.RESUME: State.OPEN,
        Event.MUTE: State.MUTED,
        Event.DRAIN: State.DRAINING,
        Event.CLOSE: State.CLOSED,
    },
    State.MUTED: {
        Event.RESUME: State.MUTED,
        Event.MUTE: State.MUTED,
        Event.UNMUTE: State.OPEN,
        Event.DRAIN: State.DRAINING,
        Event.CLOSE: State.CLOSED,
    },
    State.STARVED_MUTED: {
        Event.FEED: State.MUTED,
        Event.RESUME: State.STARVED_MUTED,
        Event.MUTE: State.STARVED_MUTED,
        Event.UNMUTE: State.STARVED,
        Event.DRAIN: State.DRAINING,
        Event.CLOSE: State.CLOSED,
    },
    State.DRAINING: {
        Event.FEED: State.DRAINING,
        Event.RESUME: State.DRAINING,
        Event.MUTE: State.DRAINING,
        Event.DRAIN: State.DRAINING,
        Event.CLOSE: State.CLOSED,
    },
    State.CLOSED: {
        Event.FEED: State.CLOSED,
        Event.RESUME: State.CLOSED,
        Event.DRAIN: State.CLOSED,
        Event.CLOSE: State.CLOSED,
    },
}
"""An event that is missing in a state cannot happen there."""


def next_state(state: State, event: Event) -> State:
    """The state after an event."""
    following = TRANSITIONS[state].get(event)
    if following is None:
        raise InvariantViolation(f"a connection in state {state.name} cannot get the event {event.name}")
    return following
