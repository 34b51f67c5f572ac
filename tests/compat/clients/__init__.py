"""Foreign Kafka clients, each with its default settings, as judges of a broker.

A client is a small program (`programs/`, `java/`, `go/`, `node/`) that takes commands as JSON lines and does them with
its library; `foreign_client` drives it, `catalogue` says which there are and what each can do. The tests are the same
for all of them: `test_records`, `test_cross_reading`, `test_admin`, `test_errors`, `test_restart`. Tools that people
type have tests of their own: `test_kcat`, `test_kafka_tools`.

`OTTLA_COMPAT_TARGET=kafka` runs everything against Apache Kafka instead of Ottla: what fails there is a wrong test.
Consumer groups are not covered here; clients read partitions that they are told.
"""
