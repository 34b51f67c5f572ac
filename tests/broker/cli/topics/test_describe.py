"""`ottla topics describe` says from which time on retention counts."""

from typing import Any

import pytest

from tests.unit.cli.command_line import CommandLine

TIMESTAMP = "the timestamp of a record"
DELIVERY = "the delivery of a record by a queue, or else its timestamp"


@pytest.mark.parametrize(
    ("name", "described", "configs", "retention_ms", "starts", "words"),
    [
        ("plain", "plain", ["retention.ms=100000"], 100_000, "timestamp", f"1.67 m after {TIMESTAMP}"),
        ("stamped", "stamped", ["message.timestamp.type=LogAppendTime"], 604_800_000, "append", "7 d after the append"),
        ("kept", "kept", ["cleanup.policy=compact"], None, None, "not by time"),
        ("late", "late", ["ottla.delay.enable=true"], 604_800_000, "delivery", f"7 d after {DELIVERY}"),
        ("parked", "parked.delayed", ["ottla.delay.enable=true"], None, None, "not by time"),
        ("half", "half", ["ottla.half.enable=true"], 604_800_000, "delivery", f"7 d after {DELIVERY}"),
    ],
)
def test_retention(
    ottla: CommandLine,
    name: str,
    described: str,
    configs: list[str],
    retention_ms: int | None,
    starts: str | None,
    words: str,
) -> None:
    options = [word for config in configs for word in ("--config", config)]
    ottla.ok("topics", "create", f"retention-{name}", *options)
    topic = f"retention-{described}"
    found: dict[str, Any] = ottla.ok("topics", "describe", topic, "--json").json
    assert (retention_ms, starts) == (found["retention_ms"], found["retention_from"])
    (line,) = (each for each in ottla.ok("topics", "describe", topic).out.splitlines() if each.startswith("retention"))
    assert words == line.removeprefix("retention").strip()
