"""Keeps the broker's image of the cluster current: follows the metadata store's changes, in order.

A change is first applied to this broker (`apply_image`: logs are created and removed), then it becomes visible in
`image`, so that a partition found in the image is there. `on_image` is called after that.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.metadata.changes import apply, image_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.store import MetadataStore, RevisionGoneError
from ottla.model.errors import OlderMetadataError


class ImageFollower:
    """The newest image that this broker has applied. `load` first, then `run` until cancelled."""

    def __init__(self, store: MetadataStore) -> None:
        self.image = ClusterImage()
        self._store = store
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def load(self) -> None:
        """Reads the image from the store; nothing is applied."""
        revision, entries = await self._store.snapshot()
        self.image = image_of(revision, entries)

    async def run(
        self, apply_image: Callable[[ClusterImage], Awaitable[None]], on_image: Callable[[], None] = lambda: None
    ) -> None:
        """Follows every change after the image, until cancelled or the store closes."""
        while True:
            try:
                async for changes in self._store.follow(self.image.revision):
                    await self._show(apply(self.image, changes), apply_image, on_image)
                return
            except RevisionGoneError:
                # The store no longer has the changes after our image.
                newest = image_of(*await self._store.snapshot())
                if newest.revision < self.image.revision:
                    raise OlderMetadataError(
                        f"the metadata store went back from revision {self.image.revision} to {newest.revision}: it was"
                        " replaced while the broker ran; restore the newest metadata and restart the brokers"
                    ) from None
                await self._show(newest, apply_image, on_image)

    async def _show(
        self, image: ClusterImage, apply_image: Callable[[ClusterImage], Awaitable[None]], on_image: Callable[[], None]
    ) -> None:
        await apply_image(image)
        self.image = image
        on_image()
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
