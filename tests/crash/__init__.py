"""What is left after the broker was killed in the middle of everything, and what it does when the disk is full.

A killed process loses what was in its memory; what it had given to the system survives. So everything that was
acknowledged must be there afterwards. `load.py` writes and remembers; `test_kill.py` kills; `test_topics.py` kills
while topics come and go; `test_full_disk.py` runs a broker on a small filesystem. OTTLA_CRASH_KILLS says how often to
kill, OTTLA_CRASH_SEED when.
"""
