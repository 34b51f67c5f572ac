"""The examples for producers in the documentation run as they stand."""

from pathlib import Path

import pytest

from tests.unit.client.broker_process import running_broker
from tests.unit.client.test_documented_examples import examples


def test_producers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_broker(tmp_path / "data") as address:
        found = list(examples("clients.md", "Producer"))
        assert 3 == len(found)
        for example in found:
            exec(compile(example.replace("localhost:9092", address), "clients.md", "exec"), {"__name__": "example"})
    assert ["10000", "10001"] == capsys.readouterr().out.split()
