"""Ottla's own clients against a real broker process: Ottla by default, Apache Kafka with `OTTLA_COMPAT_TARGET` set to
kafka or kafka-3.9. `python -m tests.compat.client_suite` runs them against all of these, side by side.

The tests are the same for all: what holds only for one of them is no promise of the clients.
"""
