"""Clients that break every rule, against a real broker process; beside them a well-behaved one that must not notice.

The broker is one of `tests/broker_process.py`, the client beside it is in `bystander.py`. What is sent: `requests.py`
has a valid request of every API and version, `mutations.py` spoils them, `batches.py` spoils records. `secured.py`
has a broker whose listeners want a login, for what is sent before a login, amid it and after it. The number of rounds
is bounded; OTTLA_HOSTILE_SECONDS makes the fuzzing longer, OTTLA_HOSTILE_SEED another one.
"""
