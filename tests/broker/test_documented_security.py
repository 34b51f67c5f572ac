"""docs/security.md: from an open broker to a closed one, with the commands as they are in the document."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.testing.free_ports import free_port
from tests.documented import ROOT, samples
from tests.waiting import PATIENCE_SECONDS

DOCUMENT = "docs/security.md"
SECTION = "From an open broker to a closed one"


@pytest.mark.slow
def test_the_commands_close_a_broker(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "ottla"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
    program.chmod(0o755)
    blocks = samples(DOCUMENT, "sh", SECTION)
    start = next(at for at, block in enumerate(blocks) if block.startswith("ottla serve"))
    # The one thing that is not in the document: waiting for the line that says that the broker is ready.
    blocks[start] = blocks[start].rstrip().removesuffix("&") + "> ready.txt 2> serve.log &\nserving=$!\n"
    waiting = "while ! grep -q ready ready.txt; do kill -0 $serving; sleep 0.05; done\n"
    script = "\n".join(["set -eu", *blocks[: start + 1], waiting, *blocks[start + 1 :], "echo done"])
    (python,) = samples(DOCUMENT, "py", SECTION)
    (tmp_path / "sample.py").write_text(python + 'producer.send("events", b"from python").get(30)\nproducer.close()\n')
    script += f"\n{sys.executable} sample.py\necho python done\nkill $serving\nwait $serving\n"
    port = str(free_port())
    for path in tmp_path.iterdir():
        if path.is_file():
            path.write_text(path.read_text().replace("9093", port))
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(tmp_path),
    }
    environment.pop("OTTLA_BOOTSTRAP", None)
    process = subprocess.Popen(
        ["bash", "-c", script.replace("9093", port)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        # Also what the script left behind, if it failed.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    log = (tmp_path / "serve.log").read_text() if (tmp_path / "serve.log").exists() else ""
    assert 0 == process.returncode, f"{out}\n{log}"
    assert "\nhello\n" in out
    assert "TOPIC_AUTHORIZATION_FAILED" in out
    assert "\ndone\n" in out
    assert "\npython done\n" in out
    assert "principal 'User:app' is denied operation CREATE" in log
    for user in ("admin", "broker", "app"):
        password = (tmp_path / "secrets" / f"{user}.password").read_text().strip()
        assert password not in log
        assert password not in out
