"""JSON Schema: drafts 4, 6, 7, 2019-09 and 2020-12. Pure.

A text goes through these files in this order:

- `json_text.py` reads it and writes the canonical text and the normalized text.
- `documents.py` finds what a `$ref` means: ids, anchors, JSON pointers, registered references. `uris.py` joins URIs.
- `loading.py` turns a document into subschemas (`subschemas.py`), children first and without recursion.
  `classic_drafts.py` has the keywords of drafts 4, 6 and 7, `modern_drafts.py` those of 2019-09 and 2020-12.
- `json_schema.py` puts this together: `parse` is the entry point.

Compatibility is Confluent's table of differences, not general subtyping: `compatibility.py` has the rules by which two
schemas are compared, `comparison.py` runs them, `differences.py` says which differences break a reader and why.
`matching.py` and `fingerprints.py` serve the comparison of `allOf`, `anyOf` and `oneOf`. `tags.py` reads and edits the
tags inside a schema.

Does not validate data: serializers do that, with the library jsonschema-rs.
"""
