"""Logins at a broker: the users of the metadata store and the configs, and the keys that tokens are checked with; and
the logins of this broker at others.

`logins.py` builds what a listener accepts; `scram_users.py` finds users and delegation tokens in the image of the
cluster; `jwks.py` fetches keys. `inter_broker_login.py` logs in at others, with the tokens of `kept_tokens.py`.
The mechanisms are `ottla.security.sasl`'s, the connections `ottla.transport.authentication`'s;
`ottla.transport.identity_provider` says what may be fetched.
"""
