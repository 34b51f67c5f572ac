"""Idempotent and transactional producers of a log: their state, its checks, its snapshots on disk."""
