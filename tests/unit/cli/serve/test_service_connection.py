"""Which listener the registry beside a broker uses, and the errors when none fits."""

from pathlib import Path

import pytest

from ottla.broker.configs.configuration import BrokerConfig
from ottla.cli.serve.command import main
from ottla.cli.serve.service_connection import ServiceConnection, service_connection
from ottla.model.errors import InvalidConfigError, MisuseError
from ottla.testing.certificates import LOOPBACK, CertificateAuthority


def config(folder: Path, listeners: str) -> BrokerConfig:
    authority = CertificateAuthority(folder / "certificates")
    settings = {
        "listeners": listeners,
        "inter.broker.listener.name": "INSIDE",
        "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL,OPEN:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker", LOOPBACK)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
    return BrokerConfig.parse(settings=settings)


def properties(folder: Path, text: str) -> str:
    path = folder / "client.properties"
    path.write_text(text)
    return str(path)


def test_a_plaintext_listener_needs_nothing(tmp_path: Path) -> None:
    broker = config(tmp_path, "INSIDE://127.0.0.1:9093,OPEN://127.0.0.1:9092")
    assert ServiceConnection("OPEN", None) == service_connection("registry", broker, None)


def test_the_protocol_of_the_properties_chooses_the_listener(tmp_path: Path) -> None:
    broker = config(tmp_path, "OPEN://127.0.0.1:9092,OUTSIDE://127.0.0.1:9094,INSIDE://127.0.0.1:9093")
    file = properties(tmp_path, "security.protocol=SSL\n")
    assert ServiceConnection("OUTSIDE", file) == service_connection("registry", broker, file)


def test_listeners_that_need_more(tmp_path: Path) -> None:
    broker = config(tmp_path, "INSIDE://127.0.0.1:9093")
    with pytest.raises(InvalidConfigError, match=r"INSIDE \(SSL\).*--registry-command-config"):
        service_connection("registry", broker, None)
    file = properties(tmp_path, "security.protocol=PLAINTEXT\n")
    with pytest.raises(InvalidConfigError, match=r"security.protocol=PLAINTEXT, but .* INSIDE \(SSL\)"):
        service_connection("registry", broker, file)


def test_properties_that_cannot_be_used(tmp_path: Path) -> None:
    broker = config(tmp_path, "INSIDE://127.0.0.1:9093")
    with pytest.raises(MisuseError, match=r"--registry-command-config .*: cannot read"):
        service_connection("registry", broker, str(tmp_path / "none"))
    with pytest.raises(MisuseError, match=r"sasl.mechanism is not set"):
        service_connection("registry", broker, properties(tmp_path, "security.protocol=SASL_SSL\n"))


def test_properties_without_a_registry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["--data", str(tmp_path), "--registry-command-config", "client.properties"])
    assert "add --registry" in capsys.readouterr().err
