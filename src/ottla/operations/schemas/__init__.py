"""Schemas for people: `readable_schemas.py` lays out their texts, `readable_conflicts.py` the reasons of a registry why
two are not compatible; both are pure. `json_encoder.py` makes keys and values of the JSON that a person typed."""
