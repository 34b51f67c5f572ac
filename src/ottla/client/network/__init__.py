"""Reaching a cluster: addresses, connections, what is known of brokers and leaders, and trying again."""
