"""The command `ottla`: finds the command and runs it.

Each command is a package of `ottla.cli`, imported only when it is used: `ottla --help` imports none of them, and
`ottla serve` no other. `ottla.cli` describes what they share.
"""

import sys
from collections.abc import Sequence
from typing import Final

from ottla.version import __version__

COMMANDS: Final = {
    "serve": "Start a broker",
    "topics": "List, describe, create and delete topics; add partitions; delete records",
    "produce": "Write records from files or a pipe to a topic",
    "consume": "Read records of topics",
    "groups": "List and describe consumer groups and their lag; reset and delete their offsets",
    "transactions": "List and describe transactions; find and abort hanging ones",
    "registry": "Run a schema registry; list, register, show, check and delete schemas",
    "queues": "Create, list and show queues; cancel or deliver parked records; redrive dead letters",
    "console": "Serve web pages for a cluster: topics, records, groups, schemas, pipelines",
    "configs": "Show and change the configs of topics and brokers",
    "acls": "Add, list, remove and check access control lists",
    "users": "List, create and delete the users that log in with a password",
    "tokens": "Create, renew, expire and describe delegation tokens",
    "quotas": "Show and change the quotas of users, client ids and addresses",
    "cluster": "Describe the cluster, check its health, elect leaders, move replicas",
    "log": "Dump log files, and list the log dirs of brokers",
    "pipeline": "Create, check, run, watch and reset pipelines on Spark",
    "bench": "Measure producing, consuming and latency of any broker",
    "doctor": "Check whether this machine can run a broker well, and say what to change",
    "profile": "Store connections to clusters under a name",
    "completion": "Print a script for command completion in bash, zsh or fish",
}
"""Every command, in the order of the help; the module is `ottla.cli.<name>.command`."""

_USAGE: Final = "Usage: ottla COMMAND [OPTIONS]"
_EXAMPLES: Final = """\
Examples:
  ottla serve                         start a broker on 127.0.0.1:9092, data in ./ottla-data
  ottla topics create events          create a topic
  echo hello | ottla produce events   write a record
  ottla consume events                read it

Commands that talk to brokers take --bootstrap HOST:PORT [default: OTTLA_BOOTSTRAP, the profile in use, or
localhost:9092]. `ottla COMMAND --help` explains each command."""


def _help_page() -> str:
    width = max(map(len, COMMANDS)) + 2
    return "\n".join(
        [
            _USAGE,
            "",
            "A distributed, replicated log that speaks Apache Kafka's wire protocol.",
            "",
            "Commands:",
            *(f"  {name.ljust(width)}{words}" for name, words in COMMANDS.items()),
            "",
            "Options:",
            f"  {'-h, --help'.ljust(width)}Show this page.",
            f"  {'--version'.ljust(width)}Show the version.",
            "",
            _EXAMPLES,
        ]
    )


def _without_command(given: Sequence[str]) -> int:
    """Answers a command line whose first word is not a command."""
    if given[:1] in (["-h"], ["--help"]):
        print(_help_page())
        return 0
    if given[:1] == ["--version"]:
        print(f"ottla {__version__}")
        return 0
    if not given:
        print(_help_page(), file=sys.stderr)
        return 2
    from difflib import get_close_matches

    near = get_close_matches(given[0], COMMANDS, n=1)
    words = f"unknown command {given[0]!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    print(f"{_USAGE}\nTry 'ottla --help' for help.\n\nError: {words}", file=sys.stderr)
    return 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status; a wrong command line exits with 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] not in COMMANDS:
        return _without_command(given)
    if given[0] == "serve":
        from ottla.cli.serve.command import main as serve

        return serve(given[1:])
    from ottla.cli.command_runner import run_command

    return run_command(given[0], given[1:])


if __name__ == "__main__":
    sys.exit(main())
