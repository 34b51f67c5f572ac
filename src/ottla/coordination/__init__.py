"""Coordinators: groups, their offsets, and transactions, each a state machine over a partition of an internal topic.

The machines (`*_state.py`) are pure: they take events and the time, and answer effects. The runtime appends the records
that a decision has, lets responses leave once those are committed, and rebuilds a machine by replaying its partition.
"""
