"""Clients and what they may do: principals, operations on resources, and the `Authorizer` port. No I/O.

The request pipeline (`ottla.broker.requests`) makes a context for each request, and handlers ask it what is allowed.
`acls.py` has ACLs, `acl_index.py` Kafka's rules for them, `acl_authorizer.py` the authorizer of a cluster with ACLs.
"""
