"""Requests about brokers, the controller, features and data dirs."""
