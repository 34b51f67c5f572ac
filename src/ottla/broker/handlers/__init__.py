"""One file for each family of APIs; `ottla.broker.dispatch` says which function serves which API.

A handler takes the broker, the request's context and the request in the newest version's class, and answers with the
response in the newest version's class. Produce and Fetch, the hot ones, take bytes and answer with bytes.
"""
