"""Every Python sample of README.md and docs/*.md runs as it stands, by itself, on a real broker.

Samples of docs/pipelines.md need Spark (`tests/spark/test_documented_samples.py`), those of docs/schemas.md a registry
(`tests/broker/registry/serde/test_documented_serializers.py`), those of docs/testing.md are tests,
those of docs/queues.md run beside those for other languages (`tests/compat/clients/test_documented_queues.py`), and
those of docs/share-consumers.md need a broker with share groups (`tests/compat/test_share_consumer.py`).
"""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ottla import Admin, NewTopic, Producer
from tests.broker_process import BrokerProcess
from tests.documented import ADDRESS, DOCUMENTS, ROOT, samples

SAMPLE_SECONDS = 120
ELSEWHERE = {"docs/pipelines.md", "docs/queues.md", "docs/schemas.md", "docs/share-consumers.md", "docs/testing.md"}
PRINTED = {
    "README.md": ["[b'order 0', b'order 1', b'order 2']"],
    "docs/clients.md": [
        "10000",
        "10001",
        "",
        "orders [0, 0, 0]\n",
        "exists",
        "",
        "",
        "",
        "",
        "measurements-0 0 3\nmeasurements-0 3\n",
        "3\n",
    ],
}
"""Something that each sample prints."""


def run(sample: str, address: str, folder: Path) -> str:
    """Runs a sample as a program of its own; what it prints."""
    (folder / "sample.py").write_text(sample.replace(ADDRESS, address))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "sample.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SAMPLE_SECONDS,
        check=False,
    )
    assert 0 == done.returncode, f"{sample}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def prepare(sample: str, address: str) -> None:
    """What the text around a sample takes for granted."""
    if "ParallelConsumer" in sample:
        with Admin(bootstrap_servers=address) as admin, Producer(bootstrap_servers=address) as producer:
            admin.create_topics([NewTopic("orders-dead")])
            producer.send("orders", b"the last")


def test_no_document_is_left_out() -> None:
    assert set(PRINTED) | ELSEWHERE == {name for name in DOCUMENTS if samples(name)}


@pytest.mark.parametrize(
    "document", [pytest.param(each, marks=pytest.mark.slow) if each.startswith("docs/") else each for each in PRINTED]
)
def test_python(document: str, tmp_path: Path) -> None:
    found = samples(document)
    assert len(PRINTED[document]) == len(found)
    with BrokerProcess(tmp_path) as broker:
        for sample, printed in zip(found, PRINTED[document], strict=True):
            prepare(sample, broker.address)
            assert printed in run(sample, broker.address, tmp_path), sample


def test_first_commands(tmp_path: Path) -> None:
    (commands,) = [each for each in samples("README.md", "") if "greetings" in each]
    with BrokerProcess(tmp_path) as broker:
        script = commands.replace(".venv/bin/ottla", f"{sys.executable} -m ottla")
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OTTLA_BOOTSTRAP": broker.address}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SAMPLE_SECONDS,
            check=False,
        )
    assert (0, True) == (done.returncode, done.stdout.endswith("hello\n")), done


@pytest.mark.slow
def test_tests(tmp_path: Path) -> None:
    (tmp_path / "test_examples.py").write_text("\n\n".join(samples("docs/testing.md")))
    is_installed = any(each.value == "ottla.testing.plugin" for each in entry_points(group="pytest11"))
    named = [] if is_installed else ["-p", "ottla.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider", *named]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (0, True) == (done.returncode, "5 passed" in done.stdout), done.stdout + done.stderr
