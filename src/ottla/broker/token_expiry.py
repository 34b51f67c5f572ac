"""Removes delegation tokens that have expired from the metadata, on the broker that is the active controller.

No broker accepts an expired token, whether it is removed or not.
"""

import logging
from collections.abc import Callable
from typing import Final

from ottla.controller.controller import Controller
from ottla.env.ports import Clock
from ottla.metadata.image import ClusterImage
from ottla.model.errors import OttlaError

_LOGGER: Final = logging.getLogger(__name__)


async def remove_expired_tokens_forever(
    controller: Controller,
    clock: Clock,
    image: Callable[[], ClusterImage],
    *,
    is_active: Callable[[], bool],
    interval_ms: int,
) -> None:
    """Looks for expired tokens every `interval_ms`, until cancelled."""
    while True:
        await clock.sleep(interval_ms / 1000)
        if not is_active() or not image().delegation_tokens:
            continue
        try:
            count = await controller.remove_expired_tokens(clock.now_ms())
        except OttlaError as error:
            _LOGGER.warning("cannot remove expired delegation tokens, retrying later: %s", error)
        else:
            if count:
                _LOGGER.info("removed %d expired delegation tokens", count)
