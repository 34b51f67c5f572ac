"""Real brokers for tests: they start in a fraction of a second on a free port, and can be killed and paused.

`plugin.py` has the pytest fixtures `ottla_broker`, `ottla_cluster`, the same as processes, `ottla_secured_broker`,
`ottla_shared_broker` and `ottla_topic`; pytest loads it wherever Ottla is installed. The brokers also work without
pytest: `InProcessBroker` runs in a thread of the test process, `ProcessBroker` in its own process, as in production;
`SecuredBroker` is an `InProcessBroker` with TLS, logins and ACLs. All are `BrokerHandle`s; a `BrokerCluster` has
several of them. `CertificateAuthority` makes certificates. `docs/testing.md` has examples.
"""

from typing import TYPE_CHECKING, Final

from ottla.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.testing.broker_cluster import BrokerCluster
    from ottla.testing.broker_handle import BrokerDidNotStartError, BrokerHandle
    from ottla.testing.certificates import CertificateAuthority
    from ottla.testing.in_process_broker import InProcessBroker
    from ottla.testing.process_broker import ProcessBroker
    from ottla.testing.secured_broker import SecuredBroker

__all__ = [
    "BrokerCluster",
    "BrokerDidNotStartError",
    "BrokerHandle",
    "CertificateAuthority",
    "InProcessBroker",
    "ProcessBroker",
    "SecuredBroker",
]

_HOMES: Final = {
    "BrokerCluster": "ottla.testing.broker_cluster",
    "BrokerDidNotStartError": "ottla.testing.broker_handle",
    "BrokerHandle": "ottla.testing.broker_handle",
    "CertificateAuthority": "ottla.testing.certificates",
    "InProcessBroker": "ottla.testing.in_process_broker",
    "ProcessBroker": "ottla.testing.process_broker",
    "SecuredBroker": "ottla.testing.secured_broker",
}

# Every pytest run imports this package, and few need a broker.
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
