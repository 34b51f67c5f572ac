"""The same as for transport without sockets."""

from tests.unit.transport.conftest import certificate, run, tls_on

__all__ = ["certificate", "run", "tls_on"]
