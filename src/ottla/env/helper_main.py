"""The helper process itself: `python -m ottla.env.helper_main`, started by `HelperProcess` and by nobody else.

It reads jobs from its standard input and writes answers to its standard output, both as frames: eight bytes of length,
big endian, then a pickle. A job is (function, arguments), an answer is (True, value) or (False, exception). It ends
when its input does, in the middle of a job too: whoever asked is gone. What a job prints goes to standard error.
"""

import os
import pickle
import queue
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO, Final

LENGTH: Final = struct.Struct(">Q")

NICENESS: Final = 10
"""A helper gives way to the brokers of its machine."""

Job = tuple[Callable[..., Any], tuple[Any, ...]]


class JobError(RuntimeError):
    """A job failed with an exception that cannot travel between processes; the message has its text."""


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame, or None when the stream has ended, inside a frame too."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = LENGTH.unpack(head)[0]
    body = stream.read(size)
    return body if len(body) == size else None


def frame(body: bytes) -> list[bytes]:
    """The pieces of one frame, to be written in one go."""
    return [LENGTH.pack(len(body)), body]


def failure(error: BaseException, text: str) -> bytes:
    """The answer that raises this error on the other side, or one that tells of it if it cannot travel."""
    try:
        if isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit):
            raise JobError(f"the job tried to end its process with {error!r}")
        error.add_note(f"in the helper process:\n{text}")
        body = pickle.dumps((False, error))
        # Many exceptions pickle but do not come back, since their constructor wants other arguments.
        pickle.loads(body)
        return body
    except Exception as why:
        return pickle.dumps((False, JobError(f"{text.rstrip()}\n(this error could not travel as it is: {why!r})")))


def answer(body: bytes) -> bytes:
    """Does one job; whatever goes wrong becomes the answer."""
    try:
        function, arguments = pickle.loads(body)
        return pickle.dumps((True, function(*arguments)), protocol=pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        return failure(error, traceback.format_exc())


def receive(stream: BinaryIO, jobs: "queue.SimpleQueue[bytes]") -> None:
    """Runs in a thread that waits for input, so that the parent's end is noticed while a job computes."""
    while (body := read_frame(stream)) is not None:
        jobs.put(body)
    # Nobody waits for an answer any more, and every job's files are made to survive a sudden end.
    os._exit(0)


def main() -> None:
    """Serves jobs until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what it means.
    os.nice(NICENESS)
    stdin, stdout = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # From here on descriptor 1 is standard error, for compiled code that prints, too.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=receive, args=(stdin, jobs), daemon=True).start()
    while True:
        body = answer(jobs.get())
        try:
            stdout.writelines(frame(body))
            stdout.flush()
        except BrokenPipeError:
            os._exit(0)
        del body


if __name__ == "__main__":
    # By its real name, so that this module's classes pickle as `ottla.env.helper_main` and not as `__main__`.
    from ottla.env import helper_main

    helper_main.main()
