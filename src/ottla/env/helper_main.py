"""The helper process: `python -m ottla.env.helper_main`, started only by `HelperProcess`.

It reads jobs from standard input and writes results to standard output, both as frames: eight bytes of length, big
endian, then a pickle. A job is (function, arguments), a result is (True, value) or (False, exception). The process ends
when its input does, even during a job, since its parent is gone. Output of a job goes to standard error.
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
"""A helper has a lower priority than the brokers of its machine."""

Job = tuple[Callable[..., Any], tuple[Any, ...]]


class JobError(RuntimeError):
    """A job failed with an exception that cannot be pickled; the message has its text."""


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame, or None at the end of the stream, even inside a frame."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    size = LENGTH.unpack(head)[0]
    body = stream.read(size)
    return body if len(body) == size else None


def frame(body: bytes) -> list[bytes]:
    """The parts of one frame, to be written at once."""
    return [LENGTH.pack(len(body)), body]


def failure(error: BaseException, text: str) -> bytes:
    """The result that raises this error in the parent, or one that describes it if it cannot be pickled."""
    try:
        if isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit):
            raise JobError(f"the job tried to end its process with {error!r}")
        error.add_note(f"in the helper process:\n{text}")
        body = pickle.dumps((False, error))
        # Many exceptions can be pickled but not unpickled, since their constructor takes other arguments.
        pickle.loads(body)
        return body
    except Exception as why:
        return pickle.dumps((False, JobError(f"{text.rstrip()}\n(this error cannot be pickled: {why!r})")))


def answer(body: bytes) -> bytes:
    """Runs one job; any failure becomes the result."""
    try:
        function, arguments = pickle.loads(body)
        return pickle.dumps((True, function(*arguments)), protocol=pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        return failure(error, traceback.format_exc())


def receive(stream: BinaryIO, jobs: "queue.SimpleQueue[bytes]") -> None:
    """Runs in a thread that reads the input, so that the end of the parent is noticed during a job."""
    while (body := read_frame(stream)) is not None:
        jobs.put(body)
    # No process waits for the result any more, and the files of every job survive a sudden end.
    os._exit(0)


def main() -> None:
    """Serves jobs until the input ends."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole process group; the parent decides what it means.
    os.nice(NICENESS)
    stdin, stdout = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # From here on descriptor 1 is standard error, also for compiled code that prints.
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
    # Under its real name, so that this module's classes are pickled as `ottla.env.helper_main`, not as `__main__`.
    from ottla.env import helper_main

    helper_main.main()
