"""The runtime of every coordinator: one state machine over one partition of an internal topic."""
