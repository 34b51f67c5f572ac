"""Definitions of Kafka's topic and broker configs: type, default, range, and when each may change."""
