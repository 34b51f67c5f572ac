"""The consumers: subscriptions, positions, fetching, and what a poll hands out."""
