"""Transactional ids: one partition of `__transaction_state`."""
