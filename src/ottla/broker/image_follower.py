"""Keeps the broker's image of the cluster current: follows the metadata store's changes, in order.

A change first becomes true on this broker (`apply_image`: logs are made and removed), then it becomes visible in
`image`: whoever reads of a partition there finds it. `on_image` hears of it then.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.metadata.changes import apply, image_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.store import MetadataStore, RevisionGoneError
from ottla.model.errors import OlderMetadataError


class ImageFollower:
    """See the module's docstring. `load` first, then `run` until cancelled."""

    def __init__(
        self,
        store: MetadataStore,
        apply_image: Callable[[ClusterImage], Awaitable[None]],
        on_image: Callable[[], None] = lambda: None,
    ) -> None:
        self.image = ClusterImage()
        self._store = store
        self._apply_image = apply_image
        self._on_image = on_image
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def load(self) -> None:
        """Takes the store as it is now; nothing is applied."""
        revision, entries = await self._store.snapshot()
        self.image = image_of(revision, entries)

    async def run(self) -> None:
        """Follows every change from the image's on, until cancelled or the store closes."""
        while True:
            try:
                async for changes in self._store.follow(self.image.revision):
                    await self._show(apply(self.image, changes))
                return
            except RevisionGoneError:
                # It was away for longer than changes are kept.
                newest = image_of(*await self._store.snapshot())
                if newest.revision < self.image.revision:
                    raise OlderMetadataError(
                        f"the metadata store went back from revision {self.image.revision} to {newest.revision}: it was"
                        " replaced while the broker ran; restore the newest metadata and restart the brokers"
                    ) from None
                await self._show(newest)

    async def _show(self, image: ClusterImage) -> None:
        await self._apply_image(image)
        self.image = image
        self._on_image()
        self._wake()

    async def wait_revision(self, revision: int) -> None:
        """Returns once the image has this revision of the store."""
        if self.image.revision < revision:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((revision, future))
            await future

    def _wake(self) -> None:
        still: list[tuple[int, asyncio.Future[None]]] = []
        for revision, future in self._waiting:
            if revision <= self.image.revision:
                if not future.done():
                    future.set_result(None)
            else:
                still.append((revision, future))
        self._waiting = still
