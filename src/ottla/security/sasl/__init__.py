"""SASL, both sides, as pure machines: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER. No I/O, no clock.

A machine takes one message and returns the next one. The broker's side: `session.py` has the states of a connection
that logs in, `broker_mechanism.py` the interface of a mechanism. The client's side: `client.py`. Sockets and delays are
`ottla.transport.authentication`'s, users and keys `ottla.broker.logins`'s.
"""
