"""Requests about groups of all kinds and their coordinators."""
