"""Creates users in the metadata store before a broker listens, so that a closed cluster has a first user."""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.metadata.records import ScramCredentialRecord, decode, encode, scram_credential, scram_record
from ottla.metadata.security_keys import scram_key
from ottla.metadata.store import ConflictError, MetadataStore, Put
from ottla.security.scram_argument import ScramUser
from ottla.security.scram_credential import ScramCredential, is_password

_LOGGER: Final = logging.getLogger(__name__)


async def add_first_users(store: MetadataStore, users: Sequence[ScramUser]) -> None:
    """Creates the users that do not exist. A user that exists stays as it is; that it differs is logged."""
    for user in users:
        key = scram_key(user.mechanism, user.name)
        while True:
            _, entries = await store.snapshot()
            found = next((entry for entry in entries if entry.key == key), None)
            if found is not None:
                existing = scram_credential(decode(key, found.value, ScramCredentialRecord))
                if not _is_same(user, existing):
                    _LOGGER.warning(
                        "user %s already has another %s credential, which --add-scram does not change; to change it,"
                        " use `ottla users` or kafka-configs",
                        user.name,
                        user.mechanism,
                    )
                break
            try:
                await store.commit([Put(key, encode(scram_record(user.credential)), 0)])
            except ConflictError:
                continue  # Another broker was faster.
            _LOGGER.info("created user %s (%s)", user.name, user.mechanism)
            break


def _is_same(user: ScramUser, existing: ScramCredential) -> bool:
    if user.password is None:
        return user.credential == existing
    return is_password(user.mechanism, existing, user.password)
