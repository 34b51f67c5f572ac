"""The clients that `benchmarks/clients.py` compares, each behind the same few calls."""
