"""The same as for transport without sockets."""

from tests.unit.transport.conftest import certificate, tls_on

__all__ = ["certificate", "tls_on"]
