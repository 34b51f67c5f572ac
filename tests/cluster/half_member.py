"""One process of a service that sends half messages: joins the group that answers questions, and says what it is asked.

Answers all questions with `commit`, or hangs in the first one.
"""

import os
import sys
import threading

from ottla import HalfDecision, HalfMessage, HalfMessageProducer


def say(line: str) -> None:
    """One write for the line and its end: questions come on several threads, and `print` would mix their lines."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def run(bootstrap: str, topic: str, answer: str) -> None:
    """Until it is killed."""

    def execute(_: HalfMessage) -> HalfDecision:
        return HalfDecision.UNKNOWN

    def check(message: HalfMessage) -> HalfDecision:
        say(f"asked {message.id}")
        if answer == "hang":
            threading.Event().wait()
        return HalfDecision.COMMIT

    with HalfMessageProducer(
        topic, execute, check, bootstrap_servers=bootstrap, group_id="service", session_timeout_ms=2000
    ):
        say("ready")
        threading.Event().wait()


if __name__ == "__main__":
    run(*sys.argv[1:])
