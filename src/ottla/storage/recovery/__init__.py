"""Opening logs after a crash or damage: checking, truncating, rebuilding. Start with `log_recovery.py`."""
