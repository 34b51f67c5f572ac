"""The option `--topic events` or `--topic events:0,2`; `operations/topic_choices.py` finds the partitions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.command_runner import guarded
from ottla.cli.options import UsageError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.errors import AnswerError

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:N,...]",
        help="Topic, or some of its partitions such as events:0,2; may be repeated.",
    ),
]


def checked_topic_choices(choices: Sequence[str] | None, *, required: bool = False) -> list[str]:
    """The values of `--topic`. Ends the command if one is not valid, or if none is given and one is required."""
    if required and not choices:
        raise UsageError("pass --topic TOPIC")
    from ottla.operations.topic_choices import parse_topic_choice

    with guarded():
        for choice in choices or ():
            parse_topic_choice(choice)
    return list(choices or ())


def partition_outcome(partition: TopicPartition, refused: "Mapping[TopicPartition, AnswerError]") -> dict[str, Any]:
    """A partition in JSON, with the error by which a broker refused to change it, or null."""
    error = refused.get(partition)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "error": None if error is None else error.error_code.name,
    }
