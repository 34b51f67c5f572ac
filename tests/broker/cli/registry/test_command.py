"""`ottla registry` against a registry on a real broker."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.registry.rest_client import RestClient
from ottla.registry.service.leader_election import ElectionOptions
from ottla.testing.certificates import LOOPBACK, CertificateAuthority
from tests.broker.registry.service.registry_thread import RegistryThread
from tests.leftovers import children
from tests.processes import OTTLA, Program, run
from tests.unit.cli.command_line import CommandLine

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}%s]}'
ORDER, ORDER_2 = AVRO % "", AVRO % ',{"name":"note","type":"string","default":""}'
ORDER_BAD = AVRO % ',{"name":"price","type":"double"}'


@pytest.fixture
def registry(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[str]:
    running = new_registry(bootstrap, request.node.name)
    before = os.environ.get("OTTLA_REGISTRY")
    os.environ["OTTLA_REGISTRY"] = running.url
    try:
        yield running.url
    finally:
        running.stop()
        os.environ.pop("OTTLA_REGISTRY")
        if before is not None:
            os.environ["OTTLA_REGISTRY"] = before


def new_registry(bootstrap: str, name: str) -> RegistryThread:
    election = ElectionOptions(group_id=f"registry-{name}", session_timeout_ms=12_000, heartbeat_interval_ms=500)
    return RegistryThread(bootstrap, topic=f"_schemas-{name}", election=election)


def test_register_show_diff_check_and_delete(ottla: CommandLine, registry: str, tmp_path: Path) -> None:
    for name, text in (("order", ORDER), ("order2", ORDER_2), ("bad", ORDER_BAD)):
        (tmp_path / f"{name}.avsc").write_text(text)
    order, order_2, bad = (str(tmp_path / f"{name}.avsc") for name in ("order", "order2", "bad"))
    assert "subject orders-value: version 1 has id 1\n" == ottla("registry", "register", "orders-value", order).out
    assert "subject orders-value: version 1 has id 1\n" == ottla("registry", "register", "orders-value", order).out
    assert "subject orders-value: compatible\n" == ottla("registry", "check", "orders-value", order_2).out
    done = ottla("registry", "check", "orders-value", bad)
    assert 1 == done.status
    assert (
        "subject orders-value: not compatible\n"
        "  /fields/1: The reader's field price of record Order has no default, and the writer's record Order has no"
        " such field (reader: new schema, writer: old schema)\n"
        "  checked against version 1, compatibility level BACKWARD\n"
    ) == done.out
    done = ottla("registry", "register", "orders-value", bad)
    assert 1 == done.status
    assert done.err.startswith("ottla: subject orders-value: not compatible: /fields/1: The reader's field price of")
    assert done.err.endswith("; checked against version 1, compatibility level BACKWARD (40901)\n")
    done = ottla("registry", "register", "orders-value", "-", "--type", "avro", "--json", stdin=ORDER_2.encode())
    assert {"subject": "orders-value", "version": 2, "id": 2} == done.json
    assert [{"subject": "orders-value", "version": 2, "id": 2, "type": "AVRO", "deleted": False}] == (
        ottla("registry", "subjects", "--json").json
    )
    assert "orders-value" in ottla("registry", "subjects").out
    shown = ottla("registry", "show", "orders-value")
    assert "version  2" in shown.out
    assert '      "name": "note",' in shown.out
    assert ORDER == ottla("registry", "show", "--id", "1", "--json").json["schema"]
    assert "used by  orders-value:1" in ottla("registry", "show", "--id", "1").out
    done = ottla("registry", "diff", "orders-value")
    assert 1 == done.status
    assert '+      "name": "note",' in done.out
    assert 0 == ottla("registry", "diff", "orders-value", "2", "2").status
    assert "soft-deleted version(s) 2" in ottla("registry", "delete", "orders-value", "-v", "latest", "--yes").out
    assert "removed version(s) 1, 2" in ottla("registry", "delete", "orders-value", "--permanent", "--yes").out
    assert [] == ottla("registry", "subjects", "--json", "--deleted").json


def test_level_and_mode(ottla: CommandLine, registry: str) -> None:
    assert "registry: level BACKWARD, mode READWRITE\n" == ottla("registry", "config").out
    done = ottla("registry", "config", "a-value", "--level", "full", "--mode", "readonly")
    assert "subject a-value: level FULL, mode READONLY\n" == done.out
    done = ottla("registry", "config", "a-value", "--no-level", "--no-mode", "--json")
    assert {"subject": "a-value", "level": "BACKWARD", "mode": "READWRITE"} == done.json
    assert 2 == ottla("registry", "config", "--level", "NONE", "--no-level").status
    assert 2 == ottla("registry", "config", "--level", "SOME").status


def test_an_export_is_imported_with_the_same_ids(
    ottla: CommandLine, registry: str, bootstrap: str, tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(ORDER)
    (tmp_path / "line.avsc").write_text('{"type":"array","items":"Order"}')
    ottla("registry", "register", "unused", "-", "--type", "avro", stdin=b'"int"')
    ottla("registry", "delete", "unused", "--permanent", "--yes")
    assert 0 == ottla("registry", "register", "z-order", str(tmp_path / "order.avsc")).status
    done = ottla("registry", "register", "lines", str(tmp_path / "line.avsc"), "-r", "Order=z-order:1")
    assert (0, "subject lines: version 1 has id 3\n") == (done.status, done.out)
    ottla("registry", "register", "gone", "-", "--type", "avro", stdin=b'"string"')
    ottla("registry", "delete", "gone", "--yes")
    archive = str(tmp_path / "registry.jsonl")
    assert "exported 3 versions\n" == ottla("registry", "export", archive).err
    other = new_registry(bootstrap, "imported")
    try:
        done = ottla("registry", "import", archive, "--yes", "--url", other.url)
        assert (0, "imported 3 versions\n") == (done.status, done.out), done.err
        there = ottla("registry", "subjects", "--json", "--deleted", "--url", other.url).json
        assert ottla("registry", "subjects", "--json", "--deleted").json == there
        assert [2, 3, 4] == sorted(each["id"] for each in there)
        # The subjects take new versions again.
        (tmp_path / "order.avsc").write_text(ORDER_2)
        done = ottla("registry", "register", "z-order", str(tmp_path / "order.avsc"), "--url", other.url)
        assert "subject z-order: version 2 has id 5\n" == done.out
    finally:
        other.stop()


def test_errors_say_what_to_do(ottla: CommandLine, registry: str, tmp_path: Path) -> None:
    done = ottla("registry", "show", "none")
    assert (1, "ottla: Subject 'none' not found. (40401)\n") == (done.status, done.err)
    done = ottla("registry", "subjects", "--url", "http://127.0.0.1:1")
    assert 3 == done.status
    assert "ottla registry serve" in done.err
    assert 2 == ottla("registry", "subjects", "--url", "nonsense").status
    assert 2 == ottla("registry", "show").status
    assert 2 == ottla("registry", "register", "s", str(tmp_path / "unknown.txt")).status
    assert 2 == ottla("registry", "delete", "s").status
    assert 2 == ottla("registry", "register", "s", "x.avsc", "-r", "nonsense").status
    assert 2 == ottla("registry", "serve", "--compatibility", "SOMEHOW").status
    (tmp_path / "export").write_text("{}")
    assert "not an export" in ottla("registry", "import", str(tmp_path / "export"), "--yes").err


@pytest.mark.slow
def test_a_registry_beside_a_broker_stops_with_it(tmp_path: Path) -> None:
    command = [*OTTLA, "serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:0"]
    with Program(command, tmp_path / "serve") as broker:
        broker.wait_ready()
        check_registry(broker)
        # A child that is just being started still has the broker's own command line, with its option --registry.
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(broker.pid)}
        registry = [pid for pid, command in commands.items() if b"\0registry\0serve\0" in command]
        assert 1 == len(registry)
        assert 0 == broker.stop()
        assert not Path(f"/proc/{registry[0]}").exists()


def check_registry(program: Program) -> None:
    kind, url = program.next_line().split()
    assert "registry" == kind, program.log_end
    with RestClient(url) as rest:
        assert [] == rest.ask("GET", "subjects")


@pytest.mark.slow
def test_a_registry_beside_a_secured_broker_logs_in(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "certificates")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = 'username="broker" password="b" user_broker="b" user_registry="r"'
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", LOOPBACK)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:registry",
    }
    config = tmp_path / "broker.toml"
    config.write_text("".join(f"\"{name}\" = '{value}'\n" for name, value in settings.items()))
    properties = tmp_path / "registry.properties"
    properties.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
        f'sasl.mechanism=PLAIN\nsasl.jaas.config={module} required username="registry" password="r";\n'
    )
    serve = [*OTTLA, "serve", "--data", tmp_path / "data", "--config", config, "--registry", "127.0.0.1:0"]
    assert "as --registry-command-config" in run(serve, status=1).stderr
    with Program([*serve, "--registry-command-config", properties], tmp_path / "serve") as broker:
        broker.wait_ready()
        check_registry(broker)
        assert 0 == broker.stop()
