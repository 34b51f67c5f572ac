"""The consumers: subscriptions, positions, and what a poll returns. Fetching is in `ottla.client.fetch`."""
