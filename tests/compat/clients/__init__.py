"""Foreign Kafka clients, each with its default settings, as judges of a broker.

A client is a small program (`programs/`, `java/`, `go/`, `node/`) that takes commands as JSON lines and does them with
its library; `foreign_client` drives it, `catalogue` says which there are and what each can do. The tests are the same
for all of them: `test_records`, `test_cross_reading`, `test_admin`, `test_errors`, `test_restart`. Tools that people
type have tests of their own: `test_kcat`, `test_kafka_tools`.

`OTTLA_COMPAT_TARGET=kafka` runs everything against Apache Kafka instead of Ottla: what fails there is a wrong test.

In groups a client has several flavours, by protocol and assignor (`group_flavours`); `group_members` drives members.
Since a group takes seconds, most of them waiting, its tests are stories that are told for all flavours at once:
`test_groups_joining`, `test_groups_crashing`, `test_groups_static`, `test_groups_growing`, `test_groups_offsets`,
`test_groups_broker_crash`, `test_groups_migration`; and `test_groups_tools` for tools.

`transactional` drives transactions: `test_transactions_produce` has the cross table of writers and readers,
`test_transactions_offsets` consume-transform-produce, then `test_transactions_fencing`, `test_transactions_restart` and
`test_transactions_tools`. `test_lost_answers` has a `middleman` between clients and broker.
"""
