"""What a registry knows and decides, without I/O, clocks or threads.

- `record_formats.py`: keys and values of the topic `_schemas` in Confluent's JSON formats, both ways.
- `registry_image.py`: what the records say: subjects, versions, ids, GUIDs, configs, modes, contexts, associations.
- `parsed_schemas.py`: resolves references and parses schemas, with a bounded cache.
- `requests.py`, `answers.py`: the JSON bodies of the REST interface.
- Decisions, one file for each family of routes: `registrations.py`, `deletions.py`, `configs.py`, `modes.py`,
  `associations.py`. Each is a function of the image and a request; it returns a `Decision` (records to write and the
  answer) or raises a `RegistryError`. The records change the image when they are read back from the log, never before.
- Reads: `lookups.py`, `compatibility_checks.py`; they return an answer or raise a `RegistryError`.
- `schema_checks.py`: parsing and comparing that takes long, apart from the image; `comparisons.py` remembers results.

`docs/decisions/0024-*.md` has the reasons.
"""
