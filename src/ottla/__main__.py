"""The command `ottla`: parses the command line and says what there is.

Covers `--version`, `--help` and `serve`. The broker is not built yet, so `serve` tells what this version can do and
ends with status 0: `make run` on a fresh machine has then shown that the house stands. The commands that talk to a
broker come with the broker, in a room of their own.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from ottla.version import __version__

STATE_OF_THE_HOUSE: Final = """\
ottla {version}: there is no broker to start yet.

Built, and usable as a library:
  ottla.records   record batches v2 byte for byte as Kafka's, four codecs, Arrow columns
  ottla.storage   the log in Kafka's file layouts: segments, indexes, recovery, retention, compaction
  ottla.env       clock, disk, network and processes as ports; ottla.sim has a disk that crashes on demand

Not built yet: the wire protocol, the broker, replication, groups, transactions, clients, Spark.
README.md has the table of features and their states; `make test` runs what there is."""

EXAMPLE: Final = """\
example:
  ottla serve        what this version can do (it will start a broker on 127.0.0.1:9092)"""


def parser() -> argparse.ArgumentParser:
    """The whole command line; every subcommand that the documents mention must be in it."""
    top = argparse.ArgumentParser(
        prog="ottla",
        description="A distributed, replicated log that speaks Apache Kafka's wire protocol.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"ottla {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("serve", help="start a broker; not built yet: tells what is")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status; a wrong command line exits with 2, as argparse does."""
    parser().parse_args(arguments)
    print(STATE_OF_THE_HOUSE.format(version=__version__))
    return 0


if __name__ == "__main__":
    sys.exit(main())
