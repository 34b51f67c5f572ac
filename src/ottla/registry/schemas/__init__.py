"""The schema languages behind one interface, without I/O.

`schema.py` has a schema as it is registered, `parsed_schema.py` what each language offers, `languages.py` the table of
languages. One package for each language: `avro/`, `json_schema/`, `protobuf/`.
"""
