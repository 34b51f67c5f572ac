"""Refuses records without a valid schema id, on topics with `confluent.value.schema.validation` or the one for keys.

Start with `schema_gate.py`: what must hold for a batch. Which ids are valid is remembered in `schema_ids_state.py`,
asked for in `schema_ids.py`, and decided in `registry_questions.py`. `held_batches.py` has the batches that wait for an
answer. Only ids are checked; whether the bytes fit the schema is not.
"""
