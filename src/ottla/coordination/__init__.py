"""Coordinators: groups, their offsets, and transactions, each a state machine over a partition of an internal topic.

The state machines (`*_state.py`) are pure: they take events and the time, and return effects. The runtime appends the
records of a decision, sends responses once those are committed, and rebuilds a machine by replaying its partition.
`broker/coordinators.py` assembles the coordinators.
"""
