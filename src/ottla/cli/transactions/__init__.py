"""`ottla transactions`: transactions and producers, and those that hang."""
