"""Requests about topics, metadata and configs."""
