"""Requests about logins, users, ACLs, tokens and quotas."""
