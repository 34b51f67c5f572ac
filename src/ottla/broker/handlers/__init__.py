"""One room for each kind of subject, one file for each family of APIs; `ottla.broker.requests.dispatch` has the table.

A handler takes the broker's `Services`, the request's context and the request in the newest version's class, and
returns the response in the newest version's class. Produce and Fetch take bytes and answer with bytes.
"""
