"""Ottla beside the real thing: Apache Kafka, its tools and its clients as judges of our bytes and files.

`kafka_jars` fetches Kafka, `kafka_broker` runs it, `kafka_dump` reads what its log dump tool says. The tests compare.
`kafkas_word` keeps Kafka's answers for them; `class_archive` makes its programs start sooner.
`ottla_broker` runs ours, and `clients` has foreign clients that judge it.
`tests/compat/prepare` makes a machine ready; `docs/decisions/0003-kafka-for-tests.md` says why it is done this way.
"""
