"""A registry instance in a thread of this process, for clients that block."""

import asyncio
import threading
from typing import Any, Self

from ottla.registry.service.election_protocol import Instance
from ottla.registry.service.registry import RegistryConfig
from ottla.registry.service.served_registry import ServedRegistry
from ottla.transport.addresses import Address
from tests.broker.registry.service.instances import ELECTION


class RegistryThread:
    """Serves from its creation to `stop`, in its own event loop; a context manager that stops it."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        options.setdefault("election", ELECTION)
        self._config = RegistryConfig(bootstrap=bootstrap, advertised=Instance(host="", port=0), **options)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _run(self) -> None:
        served = ServedRegistry(self._config, Address("127.0.0.1", 0))
        self.url = f"http://{served.address}"
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await served.run(self._stop, self._ready.set)

    def stop(self) -> None:
        """Stops it cleanly."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
