"""What the parts of the admin client share: the cluster, and carrying out several wishes at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from ottla.client.admin.values import Outcomes
from ottla.client.errors import CannotConnectError
from ottla.client.network.cluster import Cluster
from ottla.model.errors import MisuseError, OttlaError

K = TypeVar("K")
V = TypeVar("V")

WISHES_AT_ONCE_MAX: Final = 32


def several(wishes: Iterable[K]) -> Iterable[K]:
    """The wishes as they are; raises `MisuseError` for a bare text, which would count as one wish a character."""
    if isinstance(wishes, str):
        raise MisuseError(f"{wishes!r} is one text where several are expected; write [{wishes!r}]")
    return wishes


class Administration:
    """Holds the cluster until it is closed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_closed = False

    @property
    def cluster(self) -> Cluster:
        """The way into the cluster; raises `MisuseError` once closed."""
        if self._is_closed:
            raise MisuseError("this admin client is closed; make another")
        return self._cluster

    async def close(self) -> None:
        """Closes every connection. Closing twice is harmless."""
        self._is_closed = True
        await self._cluster.close()

    async def _each(
        self, wishes: Iterable[K], carry_out: Callable[[K], Awaitable[V]], raise_errors: bool
    ) -> Outcomes[K, V]:
        """Carries out each wish, some at a time. That no broker can be reached is raised in any case."""
        at_once = asyncio.Semaphore(WISHES_AT_ONCE_MAX)
        found: dict[K, V] = {}
        errors: dict[K, OttlaError] = {}

        async def one(wish: K) -> None:
            async with at_once:
                try:
                    found[wish] = await carry_out(wish)
                except OttlaError as error:
                    errors[wish] = error
                except (TypeError, ValueError, OverflowError, AttributeError) as error:
                    # A value that no message can hold: too large a number, or of another type.
                    errors[wish] = MisuseError(f"{wish} cannot be asked for: {error}")
                    errors[wish].__cause__ = error

        asked = list(dict.fromkeys(several(wishes)))
        async with asyncio.TaskGroup() as tasks:
            for wish in asked:
                tasks.create_task(one(wish))
        for error in errors.values():
            if isinstance(error, CannotConnectError) and not found:
                raise error
        outcomes = Outcomes(
            {wish: found[wish] for wish in asked if wish in found},
            {wish: errors[wish] for wish in asked if wish in errors},
        )
        return outcomes.checked() if raise_errors else outcomes
