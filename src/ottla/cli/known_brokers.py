"""Refuses a broker id that is not in the cluster, instead of waiting for that broker."""

from typing import TYPE_CHECKING

from ottla.model.errors import InvalidRequestError

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster


async def refuse_unknown_broker(cluster: "Cluster", broker: int | None) -> None:
    """Raises `InvalidRequestError` if the broker is not in the cluster; None is any broker."""
    if broker is None:
        return
    known = sorted((await cluster.refresh([])).brokers)
    if broker not in known:
        raise InvalidRequestError(
            f"broker {broker} is not registered in this cluster; registered: {', '.join(map(str, known))}"
        )
