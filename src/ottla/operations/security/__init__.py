"""Permissions: `acl_decision.py` says what ACLs decide and which of them, `acl_words.py` how ACLs are written, and
which operations a producer and a consumer need. Pure."""
