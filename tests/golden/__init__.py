"""Bytes and folders written by real Kafka and its clients, and what real readers found in them.

`README.md` says what is here and how it was made; `make.py` makes it; `manifest.py` is how a test reads it.
"""
