"""gc.freeze() in Python workers of Spark: long-lived objects are left out of garbage collection.

Spark runs a full garbage collection in a Python worker after every task. Most of the several hundred thousand objects
are modules, classes and functions, so this takes 30 ms and more for each worker of each task, and a micro-batch with a
source and a sink has two workers per task. Objects that exist when a task begins survived the last collection and are
frozen. This is not done for every task: frozen objects are never freed if they become garbage later.
"""

import gc
import os
from typing import Final

from ottla.spark.launch.quiet_exit import expect_in_daemon

_AT_USES: Final = frozenset({2, 4, 8, 16, 32, 64})
"""The uses that freeze: the first use loads most modules, later ones a few more."""

_uses = 0
_process = -1


def begin_use() -> None:
    """To be called at the beginning of a task, or of other work in a process that Spark keeps."""
    global _uses, _process
    if _process != os.getpid():
        _uses, _process = 0, os.getpid()
    _uses += 1
    if _uses in _AT_USES:
        gc.freeze()
    expect_in_daemon()
