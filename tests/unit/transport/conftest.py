"""What the transport tests share."""

import pytest

from tests.unit.transport.certificates import Certificate, make_certificate


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for loopback."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=[False, True], ids=["memory", "descriptor"])
def tls_on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listeners with TLS work in memory, as without kernel TLS, or on the descriptor, as with it.

    On a machine whose kernel has no TLS, OpenSSL encrypts in both.
    """
    monkeypatch.setattr("ottla.transport.tls_context.has_kernel_tls", lambda: request.param)
