"""Avro schemas: parsing, the texts of a schema, and whether one schema can read what another one wrote.

`avro_schema.py` is the front door. `parsing.py` turns a text into the types of `avro_types.py`; `canonical_text.py` and
`normal_form.py` turn types into texts; `compatibility.py` compares two schemas. What is accepted, the texts, and the
kinds and places of incompatibilities agree with Apache Avro's Java library, which Confluent's registry uses; the tests
in `tests/compat/registry` compare both. Does not encode or decode data: see `ottla.registry.serde`.
"""
