"""What security costs, on Ottla and on Apache Kafka: the same certificates, users, ACLs and loads, in turns.

    python -m benchmarks.security [--quick] [--only WORDS]... [--rounds N] [--json | --markdown]

Needs what `benchmarks.vs_kafka` needs: Java, Kafka's jars, a C compiler and confluent-kafka. Measured are produce and
consume by librdkafka in plaintext and over TLS (MB/s, and the broker's CPU time for each GB), TLS handshakes and SCRAM
logins per second, and small Produce requests with 10,000 ACLs and with none. The first table compares the two brokers,
the second what each of them reaches with security and without.

Each rival runs twice: with TLS, logins and the authorizer, which the cases use also if they are not about ACLs, and
without all of that ("no authorizer"). All four brokers are alive all the time and three of them are idle; which rival
goes first changes from round to round. Each case runs once on both before the first round that counts, so that Kafka is
warm; with `--quick` it is not. The client of handshakes and logins is a Python program with four threads: if it is
marked as the limit, look at the broker's CPU time instead of the rate. Before the first round a line says which TLS
version and cipher each broker agreed on: rates over different ciphers do not compare.
"""

import argparse
import contextlib
import json
import signal
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.kafka_race.arena import FULL, MB, QUICK, Arena, topic
from benchmarks.kafka_race.brokers import Kafka, Ottla, Recipe, RunningBroker
from benchmarks.kafka_race.raw_load import RawLoad
from benchmarks.kafka_race.scoreboard import markdown, table
from benchmarks.security_race import brokers
from benchmarks.security_race.cases import CASES, COMPARED, Secured
from benchmarks.security_race.login_load import agreed_cipher
from benchmarks.vs_kafka import INTERRUPTED, Samples, progress, rotated, temporary_folder
from ottla.testing.certificates import CertificateAuthority

ROUNDS: Final = 5
CLIENT_BYTES: Final = 600 * MB
CLIENT_BYTES_QUICK: Final = 30 * MB
CONNECT_S: Final = 10.0
CONNECT_QUICK_S: Final = 1.0
SMALL_REQUESTS_QUICK: Final = 10_000


def race(folder: Path, samples: Samples, *, only: Sequence[str], quick: bool, rounds: int) -> None:
    """All rounds; fills `samples`."""
    cases = {name: case for name, case in CASES.items() if not only or any(words in name for words in only)}
    with contextlib.ExitStack() as stack:
        rivals = _rivals(stack, folder, quick=quick)
        for number in range(0 if quick else -1, rounds):
            for name, case in cases.items():
                for rival in rotated(list(rivals), number):
                    if name in samples.failures:
                        continue
                    turn = "warming up" if number < 0 else f"round {number + 1} of {rounds}"
                    progress(f"{turn}: {name}, {rival}")
                    secured = rivals[rival]
                    try:
                        topic_name = f"{name.lower().replace(' ', '-')}-{number + 1}"
                        with topic(secured.arena.broker, topic_name, 1):
                            figures = case(secured, topic_name)
                    except Exception as error:
                        secured.arena.broker.check_alive()
                        samples.failures[name] = f"{rival}: {error}"
                        progress(f"{name} failed on {samples.failures[name]}")
                        continue
                    if number >= 0:
                        for measure, sample in figures.items():
                            samples.add(rival, measure, sample)


def _rivals(stack: contextlib.ExitStack, folder: Path, *, quick: bool) -> dict[str, Secured]:
    authority = CertificateAuthority(folder / "certificates")
    raw = RawLoad(folder)
    kafka, ottla = brokers.Secured(authority), brokers.Secured(authority)
    recipes: list[tuple[Recipe, Recipe, brokers.Secured]] = [
        (brokers.SecuredKafka(kafka), Kafka(), kafka),
        (brokers.SecuredOttla(ottla), Ottla(), ottla),
    ]
    volumes = QUICK if quick else FULL

    def started(recipe: Recipe, name: str) -> Arena:
        broker = RunningBroker(recipe, folder / name)
        stack.callback(broker.stop)
        broker.start()
        broker.wait_listening()
        return Arena(broker=broker, raw=raw, volumes=volumes, folder=folder)

    found = {}
    for recipe, without, secured in recipes:
        arena = started(recipe, recipe.name)
        progress(f"{recipe.name}: {agreed_cipher(secured.ports.tls, str(authority.file))}")
        found[recipe.name] = Secured(
            arena=arena,
            open=started(without, f"{recipe.name}-open"),
            ports=secured.ports,
            authority=str(authority.file),
            client_bytes=CLIENT_BYTES_QUICK if quick else CLIENT_BYTES,
            connect_s=CONNECT_QUICK_S if quick else CONNECT_S,
            small_requests=SMALL_REQUESTS_QUICK if quick else volumes.small_requests,
        )
    return found


def shares(samples: Samples) -> dict[str, Mapping[str, float]]:
    """What each rival reaches with security as a share of what it reaches without, the median of the rounds."""
    rates = {
        (measure.case, measure.quantity): taken
        for measure, taken in samples.taken.items()
        if measure.case not in samples.failures
    }
    found: dict[str, Mapping[str, float]] = {}
    for secure, plain, quantity in COMPARED:
        if (secure, quantity) in rates and (plain, quantity) in rates:
            found[f"{secure} / {plain}"] = {
                rival: statistics.median(
                    with_it.value / without.value
                    for with_it, without in zip(taken, rates[plain, quantity][rival], strict=False)
                )
                for rival, taken in rates[secure, quantity].items()
            }
    return found


def share_table(found: Mapping[str, Mapping[str, float]], *, as_markdown: bool) -> str:
    """For a terminal or a document."""
    if as_markdown:
        rows = [f"| {name} | {each['kafka']:.2f} | {each['ottla']:.2f} |" for name, each in found.items()]
        return "\n".join(["| with / without | Kafka | Ottla |", "|---|---:|---:|", *rows])
    width = max(map(len, found), default=0)
    rows = [f"{name:<{width}}  {each['kafka']:>9.2f}  {each['ottla']:>9.2f}" for name, each in found.items()]
    return "\n".join([f"{'with / without':<{width}}  {'Kafka':>9}  {'Ottla':>9}", *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if a case could not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security", description="What security costs.")
    parser.add_argument("--quick", action="store_true", help="one round, small volumes: shows that it works")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help=f"cases: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, help=f"how many rounds (default {ROUNDS}, with --quick 1)")
    parser.add_argument("--folder", type=Path, help="where the brokers' data go (default: the temporary folder)")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    output.add_argument("--markdown", action="store_true", help="tables for a document")
    options = parser.parse_args(arguments)
    # Either must unwind, so that the brokers are stopped and the folder is removed.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    samples, status = Samples(), 0
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    with temporary_folder(options.folder) as folder:
        try:
            race(folder, samples, only=options.only, quick=options.quick, rounds=rounds)
        except KeyboardInterrupt:
            progress("interrupted; these are the figures so far")
            status = INTERRUPTED
    lines, found = samples.lines(), shares(samples)
    if options.json:
        print(json.dumps({"lines": [each.as_dict() for each in lines], "shares": found, "failures": samples.failures}))
    else:
        print(
            (markdown if options.markdown else table)(lines),
            share_table(found, as_markdown=options.markdown),
            sep="\n\n",
        )
    for name, reason in samples.failures.items():
        print(f"could not run: {name}: {reason}", file=sys.stderr)
    return status or (1 if samples.failures else 0)


if __name__ == "__main__":
    sys.exit(main())
