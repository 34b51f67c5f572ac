"""The client side of Kafka's protocol, for Ottla and for Apache Kafka alike: asyncio, typed, no broker code.

Bottom first: `errors.py` names what can go wrong; `addresses.py` reads bootstrap lists; `connection.py` is one
connection with its negotiated versions and many requests in flight; `cluster.py` knows the brokers and who leads what,
routes and retries. On these stand `sender.py` (batches to partitions, with the frames of `produce_frames.py`),
`reader.py` (a range of a partition, with those of `fetch_frames.py`), `offsets.py` and `admin_requests.py`; and what
goes through `coordinators.py`: `group_admin.py`, `group_offsets.py`, `transaction_admin.py` and
`hanging_transactions.py`. `partitioner.py` chooses partitions as Java's clients do. Producer, consumer and admin
classes build on these.
"""
