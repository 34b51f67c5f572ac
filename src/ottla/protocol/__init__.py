"""The wire protocol: messages, frames, and the APIs and versions that are served.

`apis.py` has the table of APIs; `messages.py` reads and writes every message through kio, in the newest version's
classes whatever version is on the wire; `scan.pyx` splits a buffer into requests and takes Produce and Fetch apart in
place; `answer.pyx` writes their responses, `share_answers.py` those of share consumers. Knows nothing of sockets
(`ottla.transport`) or of what requests mean.
"""
