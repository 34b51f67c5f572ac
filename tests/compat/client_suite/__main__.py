"""Runs the suite against Ottla, Kafka 4 and Kafka 3.9 side by side: `python -m tests.compat.client_suite [TARGET...]`.

Most tests wait for timeouts of groups, so three at once take little longer than one. What each printed follows when it
is done; the exit status is that of the first that failed.
"""

import os
import subprocess
import sys
import tempfile
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


def main(targets: Sequence[str]) -> int:
    """Runs them all, and returns the exit status."""
    unknown = [target for target in targets if target not in PARTS]
    if unknown:
        print(f"{unknown[0]} is no target; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    suite = str(Path(__file__).parent)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ottla-client-suite-") as folder:
        running: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for target in targets or PARTS:
                with (Path(folder) / target).open("wb") as output:
                    running[target] = subprocess.Popen(
                        [sys.executable, "-m", "pytest", suite, "--durations=5", *PARTS[target]],
                        env={**os.environ, "OTTLA_COMPAT_TARGET": target},
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
            for target, process in running.items():
                status = process.wait()
                print(f"-- {target}\n{(Path(folder) / target).read_text(errors='replace')}", flush=True)
                failed = failed or status
        finally:
            for process in running.values():
                process.terminate()
                process.wait()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
