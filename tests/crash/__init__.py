"""What is left after the broker was killed in the middle of everything, and what it does when the disk is full.

A killed process loses what was in its memory; what it had given to the system survives. So everything that was
acknowledged must be there afterwards.

Killed at random moments: `load.py` writes and remembers; `test_kill.py` kills; `test_topics.py` kills while topics come
and go; `test_exactly_once.py` kills while workers (`etl.py`, started by `etl_fleet.py`) move records in transactions,
and `etl_check.py` says whether each was moved once. OTTLA_CRASH_KILLS says how often to kill, OTTLA_CRASH_SEED when.

Killed at chosen moments: `watched_disk.py` copies a broker's files at a chosen write, `doomed_broker.py` runs such a
broker; `test_coordinator_crashes.py` goes through the steps of a transaction, `test_group_crashes.py` through those of
a rebalance and of offsets, `test_first_offsets.py` looks at the first offsets of a group while coordinators are loaded;
all with raw requests (`transaction_client.py`, `group_client.py`, `places.py`).
`test_delivery_guarantees.py` kills consumers (`handling.py`) where it hurts most.

`test_full_disk.py` runs a broker on a small filesystem.
"""
