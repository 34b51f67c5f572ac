"""Reaching a cluster: connections, metadata, routing of requests, and retries."""
