"""Spares Spark's Python processes the search for garbage among what they will keep.

After every task Spark has a Python worker look for garbage in everything that it holds: modules, classes and functions
for the most part, some hundred thousand objects. That takes 30 ms and more of computing, for each worker of each task,
and a micro-batch with a source and a sink has two workers for each task. What is there when a task begins was looked
through when the one before ended, and is not garbage; so it is taken out of the search. Not done again and again, for
what was taken out is never found again should it become garbage later.
"""

import gc
import os
from typing import Final

from ottla.spark.launch.quiet_exit import expect_in_daemon

_AT_USES: Final = frozenset({2, 4, 8, 16, 32, 64})
"""The first use loads most of what there is, and later ones what they are the first to need."""

_uses = 0
_process = -1


def begin_use() -> None:
    """To be called at the beginning of a task, and of whatever else Spark does in a process that it keeps."""
    global _uses, _process
    if _process != os.getpid():
        _uses, _process = 0, os.getpid()
    _uses += 1
    if _uses in _AT_USES:
        gc.freeze()
    expect_in_daemon()
