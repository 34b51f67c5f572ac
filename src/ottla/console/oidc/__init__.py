"""Signing in with OpenID Connect: the authorization code flow with PKCE, state and nonce.

`provider.py` asks the identity provider: its discovery document, its keys, tokens for a code or a refresh token, and
checks them. `flow.py` binds a login to the browser that began it. `tokens.py` are the tokens of one session, renewed
while it lives: clients log in at the brokers with the access token (OAUTHBEARER), so that the cluster's ACLs apply.
"""
