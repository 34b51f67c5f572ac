"""Real brokers for tests: started in a fraction of a second, on a free port and a folder of their own, and broken at
will.

`plugin.py` has the pytest fixtures `ottla_broker`, `ottla_cluster`, their twins as processes, `ottla_shared_broker` and
`ottla_topic`; pytest finds it by itself wherever Ottla is installed. The brokers behind them can be used without
pytest, too: `InProcessBroker` lives in a thread of the test's own process, `ProcessBroker` in a process as in
production. Both are `BrokerHandle`s; a `BrokerCluster` has several of them. `docs/testing.md` has examples.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.testing.broker_cluster import BrokerCluster
    from ottla.testing.broker_handle import BrokerDidNotStartError, BrokerHandle
    from ottla.testing.in_process_broker import InProcessBroker
    from ottla.testing.process_broker import ProcessBroker

__all__ = ["BrokerCluster", "BrokerDidNotStartError", "BrokerHandle", "InProcessBroker", "ProcessBroker"]

_HOMES: Final = {
    "BrokerCluster": "ottla.testing.broker_cluster",
    "BrokerDidNotStartError": "ottla.testing.broker_handle",
    "BrokerHandle": "ottla.testing.broker_handle",
    "InProcessBroker": "ottla.testing.in_process_broker",
    "ProcessBroker": "ottla.testing.process_broker",
}


def __getattr__(name: str) -> Any:
    """Loads a broker when it is first asked for: every run of pytest loads this package, and few need one."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
