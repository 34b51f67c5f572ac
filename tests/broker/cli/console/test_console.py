"""`ottla console`: its options, and what it says when something is missing."""

from tests.unit.cli.command_line import CommandLine


def test_the_command_refuses_a_prometheus_that_is_not_http(ottla: CommandLine) -> None:
    done = ottla("console", "--listen", "127.0.0.1:0", "--prometheus", "user:secret@h:9090")
    assert 2 == done.status
    assert "--prometheus: write it as http://HOST:9090" in done.err
    assert "secret" not in done.err + done.out


def test_the_command_refuses_to_listen_without_a_login(ottla: CommandLine) -> None:
    done = ottla("console", "--listen", "0.0.0.0:0")
    assert 2 == done.status
    assert "--auth cluster" in done.err
