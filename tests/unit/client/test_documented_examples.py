"""The examples about admin, parallel consumer and testing run as they are written, but for the address."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from ottla.client.blocking_producer import Producer
from ottla.testing import InProcessBroker

ROOT = Path(__file__).parents[3]


def examples(document: str, heading: str | None = None) -> list[str]:
    """The blocks of Python below a heading, or of the whole document."""
    text = (ROOT / "docs" / document).read_text()
    if heading is not None:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert found, f"{document} has no example below {heading}"
    return found


def test_admin_and_parallel_consumer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with InProcessBroker(tmp_path) as broker:
        names: dict[str, Any] = {}
        for example in examples("clients.md", "Admin"):
            exec(example.replace("localhost:9092", broker.bootstrap), names)
        printed = capsys.readouterr().out
        assert "orders [0, 0, 0]\n0 records\n" in printed
        assert "exists" in printed
        broker.create_topic("orders-dead")
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("orders", b"the last")
        for example in examples("clients.md", "Parallel consumer"):
            exec(example.replace("localhost:9092", broker.bootstrap), names)
        assert 1 == names["consumer"]._asynchronous.metrics()["handled"]


def test_testing(tmp_path: Path) -> None:
    (tmp_path / "test_examples.py").write_text("\n\n".join(examples("testing.md")))
    is_installed = any(each.value == "ottla.testing.plugin" for each in entry_points(group="pytest11"))
    named = [] if is_installed else ["-p", "ottla.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", *named]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (0, True) == (done.returncode, "4 passed" in done.stdout), done.stdout + done.stderr
