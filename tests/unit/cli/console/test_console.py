"""`ottla console`: its options, and what it says when something is missing."""

import importlib.util
from pathlib import Path

import pytest

from ottla.cli.console import needed_packages
from ottla.cli.console.needed_packages import MissingPackagesError, check_installed
from ottla.cli.console.run import audit_file, command_options, split_login
from ottla.cli.profile.store import Connection
from ottla.cli.serve.command import main as serve
from ottla.cli.serve.console_process import PrometheusOptions, check_console, console_process
from ottla.cli.serve.service_connection import ServiceConnection
from ottla.model.errors import InvalidConfigError, MisuseError


def test_missing_packages_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    found = importlib.util.find_spec
    monkeypatch.setattr(needed_packages, "find_spec", lambda name: None if name == "jinja2" else found(name))
    with pytest.raises(MissingPackagesError, match=r"needs jinja2; .*pip install 'ottla\[console\]'"):
        check_installed()


def test_the_login_of_a_registry_is_kept_out_of_its_url() -> None:
    assert (None, None, None) == split_login(None)
    assert ("http://h:1", "u", "p") == split_login("http://u:p@h:1")
    assert ("https://a/x,http://b:2", "u", "p") == split_login("https://a/x, http://u:p@b:2")
    with pytest.raises(MisuseError, match="http://HOST:PORT"):
        split_login("h:1")


def test_where_changes_are_recorded() -> None:
    assert Path("/state/ottla/console-audit.jsonl") == audit_file({"XDG_STATE_HOME": "/state", "HOME": "/people/ada"})
    assert Path("/people/ada/.local/state/ottla/console-audit.jsonl") == audit_file({"HOME": "/people/ada"})


def test_commands_on_pages_reach_the_same_cluster() -> None:
    assert ("--bootstrap=b:1",) == command_options(Connection(bootstrap="b:1"))
    given = command_options(Connection(bootstrap="b:1", command_config="c.properties"))
    assert ("--bootstrap=b:1", "--command-config=c.properties") == given


def test_an_address_that_others_reach_needs_a_login(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    check_console(("127.0.0.1", 8080))
    with pytest.raises(InvalidConfigError, match="ottla console --auth cluster"):
        check_console(("0.0.0.0", 8080))
    assert 1 == serve(["--data", str(tmp_path), "--console", "192.0.2.1:8080"])
    assert "--console 192.0.2.1:8080: this console has no login" in capsys.readouterr().err
    assert 1 == serve(["--data", str(tmp_path), "--console-command-config", "x"])
    assert "add --console" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir()), "refused before anything was written"


def test_a_prometheus_that_cannot_be_asked_is_refused_before_the_broker_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert 1 == serve(["--data", str(tmp_path), "--prometheus", "http://h:9090"])
    assert "add --console" in capsys.readouterr().err
    assert 1 == serve(["--data", str(tmp_path), "--console", "--prometheus", "ftp://user:secret@h"])
    said = capsys.readouterr().err
    assert "--prometheus: write it as http://HOST:9090" in said
    assert "secret" not in said
    assert [] == list(tmp_path.iterdir()), "refused before anything was written"


def test_the_console_beside_a_broker_knows_its_registry_and_metrics() -> None:
    made = console_process(
        ("::1", 0), ServiceConnection("INSIDE", "c.properties"), ["http://a:1", "http://b:2"], ["http://m/metrics"],
        "json", "info", PrometheusOptions("https://u:p@h/prometheus", ["job=a"]),
    )  # fmt: skip
    assert "INSIDE" == made.listener
    words = " ".join(made._command)
    assert "console --listen [::1]:0 --command-config c.properties --registry http://a:1,http://b:2" in words
    assert "--metrics http://m/metrics --prometheus https://u:p@h/prometheus --prometheus-label job=a" in words
    assert "--log-format json --log-level info" in words
