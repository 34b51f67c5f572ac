"""Schemas for people: `readable_schemas.py` lays out their texts, `readable_conflicts.py` the reasons of a registry why
two are not compatible. Pure."""
