"""`--command-config` and profiles with one: commands on a broker that needs TLS and a login."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

import ottla.cli as command_modules
from ottla.__main__ import main
from ottla.cli.command_runner import application
from ottla.cli.options import Bootstrap, Profile
from ottla.testing import InProcessBroker
from tests.broker.running_broker import serving_in_thread
from tests.broker.secured import Secured
from tests.unit.cli.command_line import CommandLine


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def bootstrap(certificates: Secured) -> Iterator[str]:
    configs = {"offsets.topic.replication.factor": "1", **certificates.broker("SASL_SSL")}
    with serving_in_thread(certificates.folder, configs) as broker:
        yield f"127.0.0.1:{broker.advertised[1]}"


@pytest.fixture
def properties(certificates: Secured) -> Path:
    path = certificates.folder / "client.properties"
    path.write_text(
        "# a client\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '  username="alice" password="alice-pw";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={certificates.ca}\n"
    )
    return path


def test_commands(ottla: CommandLine, properties: Path) -> None:
    config = ("--command-config", str(properties))
    ottla.ok("topics", "create", "orders", *config)
    ottla.ok("produce", "orders", *config, stdin=b"one\ntwo\n")
    assert ottla.ok("consume", "orders", *config).out == "one\ntwo\n"
    assert ottla.ok("consume", "orders", "--group", "g", *config).out == "one\ntwo\n"
    assert "orders" in ottla.ok("topics", "list", *config).out


def test_profile(ottla: CommandLine, properties: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "config.toml"))
    ottla.ok("profile", "create", "safe", "--bootstrap", ottla.bootstrap, "--set", f"command.config={properties}")
    ottla.ok("topics", "list", "--profile", "safe")


def test_without_it_the_error_says_what_to_set(ottla: CommandLine) -> None:
    done = ottla("topics", "list")
    assert done.status == 3
    assert "set security_protocol (security.protocol) to SSL or SASL_SSL" in done.err
    assert "--command-config FILE" in done.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("alice-pw", "wrong", "check the user name and the password"),
        ("ssl.truststore.", "# ", "set ssl_cafile (ssl.truststore.location)"),
        ("SASL_SSL", "SSL", "does not log in; use SASL_SSL"),
        ("SASL_SSL", "SASL_PLAINTEXT", "does not encrypt; use SSL or SASL_SSL"),
        ("security.protocol=", "security.protocoll=", "did you mean security.protocol?"),
        ("ssl.truststore.location=", "ssl.truststore.location=/none", "cannot read /none"),
    ],
)
def test_mistakes(ottla: CommandLine, properties: Path, old: str, new: str, words: str) -> None:
    properties.write_text(properties.read_text().replace(old, new))
    done = ottla("topics", "list", "--command-config", str(properties))
    assert done.status != 0
    assert words in done.err
    assert "Traceback" not in done.err
    assert "alice-pw" not in done.err
    assert done.err.count(str(properties)) <= 1


def test_wrong_host_name(ottla: CommandLine, properties: Path) -> None:
    # Another spelling of the same address, which is not in the certificate.
    ottla.bootstrap = ottla.bootstrap.replace("127.0.0.1", "127.1")
    done = ottla("topics", "list", "--command-config", str(properties))
    assert done.status == 1
    assert "is not valid for the host name '127.1'" in done.err


def test_tls_where_the_listener_has_none(ottla: CommandLine, properties: Path, ottla_broker: InProcessBroker) -> None:
    ottla.bootstrap = ottla_broker.bootstrap
    done = ottla("topics", "list", "--command-config", str(properties))
    assert done.status == 3
    assert "if the listener does not use TLS, set security_protocol (security.protocol) to PLAINTEXT" in done.err


def commands() -> Iterator[tuple[str, set[str]]]:
    """Every command of every group, with its options."""
    for path in sorted(Path(command_modules.__file__).parent.glob("*/command.py")):
        module = import_module(f"ottla.cli.{path.parent.name}.command")
        if not hasattr(module, "app"):
            continue
        waiting = [(path.parent.name, typer.main.get_command(module.app))]
        while waiting:
            name, command = waiting.pop()
            inner = getattr(command, "commands", {})
            waiting += [(f"{name} {each}", found) for each, found in inner.items()]
            if not inner:
                yield name, {word for each in command.params for word in each.opts}


def test_none_is_without_it() -> None:
    found = dict(commands())
    assert len(found) > 60
    connect = {name: options for name, options in found.items() if options & {"--bootstrap", "--url", "--profile"}}
    assert {"consume", "registry subjects", "pipeline run", "queues list"} <= connect.keys()
    # A profile names the file as command.config.
    assert ["profile create"] == [name for name, options in connect.items() if "--command-config" not in options]


def test_every_command_that_connects_has_it(capfd: pytest.CaptureFixture[str]) -> None:
    app = application("A test.")

    @app.command("one")
    def one(bootstrap: Bootstrap = None, profile: Profile = None) -> None:
        pass

    @app.command("other")
    def other(name: str = "") -> None:
        pass

    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    found = {name: [each.name for each in command.params] for name, command in group.commands.items()}
    assert ["bootstrap", "profile", "command_config"] == found["one"]
    assert ["name"] == found["other"]
    for words in (("groups", "list"), ("cluster", "health"), ("acls", "list"), ("consume",), ("transactions", "list")):
        with pytest.raises(SystemExit):
            main((*words, "--help"))
        assert "--command-config" in capfd.readouterr().out
