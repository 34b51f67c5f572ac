"""The transactions of a producer: their states, their requests, and two-phase commit."""
