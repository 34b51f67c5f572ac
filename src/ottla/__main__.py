"""The command `ottla`: finds the command that was asked for and runs it.

Each command is a module of `ottla.cli`, imported only when it is asked for: `ottla --help` imports none of them, and
`ottla serve` no other. `ottla.cli` says what they have in common.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from ottla.version import __version__

COMMANDS: Final = {
    "serve": "start a broker",
    "topics": "list, describe, create and delete topics; add partitions; delete records",
    "produce": "write records from a file or a pipe into a topic",
    "consume": "read records of a topic",
    "groups": "list and describe groups; see their lag; reset and delete their offsets",
    "transactions": "list and describe transactions; find those that hang; abort them",
    "configs": "show and change the configs of topics and brokers",
    "cluster": "describe the cluster, and say whether it is well",
    "log": "look into log files on disk, and at a broker's log dirs",
    "pipeline": "make, check, run, watch and reset pipelines on Spark",
    "bench": "measure producing, consuming and latency, against any broker",
}
"""Every command, in the order of the help; the module is `ottla.cli.<name>`."""

EXAMPLE: Final = """\
examples:
  ottla serve                             start a broker on 127.0.0.1:9092, data in ./ottla-data
  ottla topics create events              make a topic
  echo hello | ottla produce events       write a record
  ottla consume events                    read it

Commands that talk to a broker take --bootstrap HOST:PORT, or the environment's OTTLA_BOOTSTRAP.
`ottla COMMAND --help` tells about each."""


def parser() -> argparse.ArgumentParser:
    """The first word of the command line; the rest is each command's own."""
    top = argparse.ArgumentParser(
        prog="ottla",
        description="A distributed, replicated log that speaks Apache Kafka's wire protocol.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, words in COMMANDS.items():
        commands.add_parser(name, help=words, add_help=False)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status; a wrong command line exits with 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] not in COMMANDS:
        parser().parse_args(given)
    if given[0] == "serve":
        from ottla.cli.serve import main as serve

        return serve(given[1:])
    from ottla.cli.running import run_command

    return run_command(given[0], given[1:])


if __name__ == "__main__":
    sys.exit(main())
