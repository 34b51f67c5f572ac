"""Runs the suite against Ottla, Kafka 4 and Kafka 3.9 side by side: `python -m tests.compat.client_suite [TARGET...]`.

Most tests wait for timeouts of groups, so two at once of each target take little longer than one. The output of each
target follows when it is done, or when it takes too long: then with the stack of the test that hangs. The exit status
is that of the first target that failed.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PARTS: Final[dict[str, tuple[str, ...]]] = {
    "ottla": (),
    "kafka": (),
    # The old one only speaks older versions of the same requests: one flavour of groups shows that, and no restarts.
    "kafka-3.9": ("-k", "not the_broker_crashes and not broker_is_killed and not (come_crash and not cooperative)"),
}
"""The targets, and what of the suite is run against each."""

TIMEOUT_S: Final = 600.0
"""For all targets together: several times what they take on two busy cores."""
OPTIONS: Final = ("-v", "--durations=5", "--timeout=200", "--workers", "2", "--take", "test")
"""Each test is named when it ends, and one that hangs fails before the time of all is up."""
IN_CI: Final = ("--rerun-failed",) if "CI" in os.environ else ()


def main(targets: Sequence[str]) -> int:
    """Runs them all, and returns the exit status."""
    unknown = [target for target in targets if target not in PARTS]
    if unknown:
        print(f"unknown target {unknown[0]}; the targets are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    suite = str(Path(__file__).parent)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ottla-client-suite-") as folder:
        running: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for target in targets or PARTS:
                with (Path(folder) / target).open("wb") as output:
                    running[target] = subprocess.Popen(
                        [sys.executable, "-m", "pytest", suite, *OPTIONS, *IN_CI, *PARTS[target]],
                        env={**os.environ, "OTTLA_COMPAT_TARGET": target},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
            deadline = time.monotonic() + TIMEOUT_S
            for target, process in running.items():
                try:
                    status = process.wait(max(deadline - time.monotonic(), 0))
                except subprocess.TimeoutExpired:
                    print(f"-- {target} did not end within {TIMEOUT_S:.0f} s", flush=True)
                    status = 1
                print(f"-- {target}\n{(Path(folder) / target).read_text(errors='replace')}", flush=True)
                failed = failed or status
        finally:
            for process in running.values():
                process.terminate()
                process.wait()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
