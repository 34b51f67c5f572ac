"""What a terminal gets: no control characters of others, readable times, a progress bar; and what a pipe gets."""

import re
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from ottla.cli.output import printable, say, tell
from tests.broker.cli.terminal import on_terminal
from tests.processes import run
from tests.unit.cli.command_line import CommandLine

EVIL = "evil\x1b]0;owned\x07\nfake line\x9b\u202e"
SHOWN = r"evil\x1b]0;owned\x07\nfake line\x9b\u202e"
RECORD = msgspec.json.encode({"key": EVIL, "value": EVIL, "headers": {EVIL: EVIL}, "timestamp": 1_700_000_000_123})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ä 漢 🙂", "plain ä 漢 🙂"),
        (EVIL, SHOWN),
        ("\t\r\x00\x7f", r"\t\r\x00\x7f"),
        ("\u2028\U000e0001\udcff", r"\u2028\U000e0001\xff"),
    ],
)
def test_unprintable_characters_are_escaped(text: str, expected: str) -> None:
    assert expected == printable(text)


def test_lines_and_remarks_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    tell("a", EVIL)
    say(EVIL)
    assert (f"a\n{SHOWN}\n", f"{SHOWN}\n") == tuple(capsys.readouterr())


def test_group_ids_are_escaped_for_people_and_exact_in_json(ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "t-groups")
    ottla.ok("groups", "reset-offsets", EVIL, "--topic", "t-groups", "--to-earliest", "--execute")
    for command in (("groups", "list"), ("groups", "describe", EVIL), ("groups", "describe", EVIL, "--state")):
        done = ottla.ok(*command)
        assert (True, False, False) == (
            SHOWN in done.out,
            "\x1b" in done.out + done.err,
            "\nfake" in done.out + done.err,
        )
    remark = ottla.ok("groups", "describe", EVIL).err
    assert f"group {SHOWN} has no active members\n" == remark
    assert EVIL in [each["group"] for each in ottla.ok("groups", "list", "--json").json]
    ottla.ok("groups", "delete", EVIL, "--yes")
    refused = ottla("groups", "describe", EVIL)
    assert (1, True, False) == (refused.status, SHOWN in refused.err, "\x1b" in refused.err)


def test_a_client_id_is_escaped(bootstrap: str, ottla: CommandLine) -> None:
    from confluent_kafka import Consumer

    ottla.ok("topics", "create", "t-clients")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "t-clients", "client.id": "c\x1b[2J"})
    try:
        consumer.subscribe(["t-clients"])
        for _ in range(200):
            consumer.poll(0.1)
            if consumer.assignment():
                break
        shown = ottla.ok("groups", "describe", "t-clients", "--members").out
        assert (True, False) == (r"c\x1b[2J" in shown, "\x1b" in shown)
    finally:
        consumer.close()


@pytest.mark.slow
def test_consume_escapes_on_a_terminal_and_is_exact_in_a_pipe(bootstrap: str, ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "t-consume")
    ottla.ok("produce", "t-consume", "--format", "json", stdin=RECORD)
    consume = ("consume", "t-consume", "--print", "key,headers")
    escaped = f"{SHOWN}\t{SHOWN}={SHOWN}\t{SHOWN}\n".encode()
    exact = f"{EVIL}\t{EVIL}={EVIL}\t{EVIL}\n".encode()
    assert escaped == on_terminal(bootstrap, *consume).terminal
    assert exact == on_terminal(bootstrap, *consume, "--raw").terminal
    assert exact == on_terminal(bootstrap, *consume, stream="stderr").piped
    raw = ("consume", "t-consume", "--format", "raw")
    assert SHOWN.encode() == on_terminal(bootstrap, *raw).terminal
    assert EVIL.encode() == on_terminal(bootstrap, *raw, "--raw").terminal
    assert EVIL.encode() == on_terminal(bootstrap, *raw, stream="stderr").piped
    json = on_terminal(bootstrap, "consume", "t-consume", "--json").terminal
    assert (True, EVIL) == (json.isascii(), msgspec.json.decode(json)["value"])
    assert (
        EVIL
        == msgspec.json.decode(on_terminal(bootstrap, "consume", "t-consume", "--json", stream="stderr").piped)["value"]
    )


def test_a_terminal_gets_local_times(bootstrap: str, ottla: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    ottla.ok("topics", "create", "t-times")
    ottla.ok("produce", "t-times", "--format", "json", stdin=b'{"value":"v","timestamp":1700000000123}')
    consume = ("consume", "t-times", "--print", "timestamp")
    assert b"2023-11-15 00:13:20.123\tv\n" == on_terminal(bootstrap, *consume).terminal
    assert b"1700000000123\tv\n" == on_terminal(bootstrap, *consume, stream="stderr").piped
    assert b"1700000000123\tv\n" == on_terminal(bootstrap, *consume, "--time-format", "epoch").terminal


def test_producing_a_file_shows_percentages_on_a_terminal_only(
    bootstrap: str, ottla: CommandLine, tmp_path: Path
) -> None:
    ottla.ok("topics", "create", "t-file")
    source = tmp_path / "lines.txt"
    source.write_text("".join(f"{number}\n" for number in range(50_000)))
    shown = on_terminal(bootstrap, "produce", "t-file", "--file", str(source), stream="stderr")
    assert (0, b"") == (shown.status, shown.piped)
    plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown.terminal).decode()
    assert "100%" in plain
    assert "sent 50,000 records" in plain
    piped = ottla.ok("produce", "t-file", "--file", str(source))
    assert ("", "") == (piped.out, piped.err)
    assert 100_000 == len(ottla.ok("consume", "t-file").out.split())


def test_a_terminal_shows_what_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "config.toml").write_text(
            f'[profiles.silent]\nbootstrap = "{address}"\n'
            'settings = { "request.timeout.ms" = "3000", "socket.connection.setup.timeout.ms" = "3000" }\n'
        )
        shown = on_terminal(address, "topics", "list", "--profile", "silent", stream="stderr")
        piped = on_terminal(address, "topics", "list", "--profile", "silent")
    assert 3 == shown.status
    assert re.search(rf"\rwaiting for {re.escape(address)} \([123] s\)".encode(), shown.terminal)
    assert b"waiting" not in shown.terminal.splitlines()[-1].rpartition(b"\r")[2], "the line was removed"
    assert b"waiting" not in piped.piped


def test_a_person_is_told_what_is_waited_for_and_that_there_is_nothing(bootstrap: str, ottla: CommandLine) -> None:
    ottla.ok("topics", "create", "t-empty")
    shown = on_terminal(bootstrap, "consume", "t-empty", stream="stderr")
    assert (b"no records found in t-empty\n", b"") == (shown.terminal, shown.piped)
    assert "" == ottla.ok("consume", "t-empty").err


def test_warnings_of_the_library_are_escaped() -> None:
    program = (
        "import logging\n"
        "from ottla.cli.command_runner import _show_warnings\n"
        "_show_warnings()\n"
        "logging.getLogger('ottla.client').warning('group %s', 'g\\x1b')\n"
    )
    assert "ottla: group g\\x1b\n" == run([sys.executable, "-c", program]).stderr
