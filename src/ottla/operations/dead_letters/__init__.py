"""Dead letters: `letters.py` reads and filters them, `redrive.py` sends them back to their topics, exactly once
(`redrive_progress.py` says which were), `purging.py` finds what can be deleted, `topics.py` which topics have them.
"""
