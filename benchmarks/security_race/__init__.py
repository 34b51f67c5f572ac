"""The parts of `benchmarks/security.py`: Apache Kafka and Ottla with the same certificates, users and ACLs.

`brokers` starts the two with three listeners each, `login_load` connects and logs in as often as it can, `cases` is the
table of what is measured.
"""
