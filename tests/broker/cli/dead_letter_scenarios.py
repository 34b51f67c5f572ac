"""What `ottla queues dead-letters` must do on any broker: the same scenarios run against Ottla and against Kafka."""

from pathlib import Path
from typing import Final

from tests.broker.cli.command_scenarios import Scenario
from tests.broker.cli.group_scenarios import create_topic
from tests.unit.cli.command_line import CommandLine

LETTERS: Final = b"".join(
    b'{"key":"k%d","value":"%d","partition":0,"headers":{"trace":"t","__dlq.errors.topic":"s-orders",'
    b'"__dlq.errors.partition":"1","__dlq.errors.offset":"%d","__dlq.errors.message":"%s"}}\n'
    % (at, at, at, b"odd" if at % 2 else b"even")
    for at in range(6)
)


def dead_letters(ottla: CommandLine, tmp_path: Path) -> None:
    create_topic(ottla, "s-orders", "-p", "2")
    create_topic(ottla, "dlq.s-orders")
    ottla.ok("produce", "dlq.s-orders", "--format", "json", stdin=LETTERS)
    command = ("queues", "dead-letters")
    listed = ottla.ok(*command, "list", "--json").json
    assert {"topic": "dlq.s-orders", "partitions": 1, "records": 6} in listed
    odd = ottla.ok(*command, "list", "dlq.s-orders", "--reason", "odd", "--json").json
    assert [1, 3, 5] == [each["origin"]["offset"] for each in odd]
    assert "header trace=t" in ottla.ok(*command, "show", "dlq.s-orders", "0:2").out
    planned = ottla.ok(*command, "redrive", "dlq.s-orders", "--dry-run").out
    assert "6 letters would be sent to s-orders\n" == planned

    ottla.ok(*command, "redrive", "dlq.s-orders", "--reason", "odd", "--yes")
    assert {"s-orders": 3} == ottla.ok(*command, "redrive", "dlq.s-orders", "--yes", "--json").json["redriven"]
    assert "no letters to redrive\n" == ottla.ok(*command, "redrive", "dlq.s-orders", "--yes").err
    back = ottla.ok("consume", "s-orders", "--json").json_lines
    assert ["1", "3", "5", "0", "2", "4"] == [each["value"] for each in back]
    assert [{"trace": "t", "ottla.redrive.count": "1"}] * 6 == [each["headers"] for each in back]
    assert {1} == {each["partition"] for each in back}

    ottla.ok(*command, "purge", "dlq.s-orders", "--redriven", "--yes")
    assert [] == ottla.ok(*command, "list", "dlq.s-orders", "--json").json


SCENARIOS: Final[list[Scenario]] = [dead_letters]
