"""Ottla's own clients against a real broker process: Ottla by default, Apache Kafka with `OTTLA_COMPAT_TARGET=kafka`.

The tests are the same for both: what holds only for one of them is no promise of the clients.
"""
