"""Records of a topic: which ones are asked for (`query.py`), how bytes are shown (`shown.py`), rows (`rows.py`), search
and reading (`scan.py` scans one chunk, `search.py` a topic), following (`live.py`), one record with all its bytes
(`one_record.py`), downloads (`exports.py`) and producing (`producing.py`).

Everything is read with the user's rights and in bounded memory: a row keeps the first characters of a key or value,
never all of it.
"""
