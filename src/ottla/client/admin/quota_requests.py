"""Admin requests about client quotas: describe, alter."""

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.arguments import ArgumentError
from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.errors import OttlaError
from ottla.protocol.apis import ApiKey
from ottla.security.quota_entity import DEFAULT_NAME, QuotaEntity

_TYPES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""The types of entities: here, and in the protocol."""
_EXACT, _DEFAULT, _ANY = 0, 1, 2
"""How the filter of one type matches names."""


async def describe_client_quotas(
    cluster: Cluster, components: Mapping[str, str | None], *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """The quotas of the entities that have all these components, by entity.

    A component is `user`, `client_id` or `ip`, with a name, "" for the default entity, or None for any. With `strict`,
    entities that have other components as well are left out.
    """
    from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
    from kio.static.primitive import i8

    _check(components)
    message = DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(
                entity_type=_TYPES[kind],
                match_type=i8(_ANY if name is None else _DEFAULT if name == DEFAULT_NAME else _EXACT),
                match=name or None,
            )
            for kind, name in components.items()
        ),
        strict=strict,
    )

    async def ask() -> dict[QuotaEntity, dict[str, float]]:
        response = await cluster.to_controller(ApiKey.DESCRIBE_CLIENT_QUOTAS, message)
        if response.error_code:
            raise answer_error(int(response.error_code), "client quotas", response.error_message)
        return {
            _entity(entry.entity): {value.key: float(value.value) for value in entry.values}
            for entry in response.entries or ()
        }

    found = await cluster.retry(ask)
    return dict(sorted(found.items(), key=lambda item: _order(item[0])))


async def alter_client_quotas(
    cluster: Cluster, alterations: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
) -> dict[QuotaEntity, OttlaError]:
    """Sets quotas, None removes one; returns the entities that were refused."""
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
    from kio.static.primitive import f64

    message = AlterClientQuotasRequest(
        entries=tuple(
            EntryData(
                entity=tuple(
                    EntityData(entity_type=spelling, entity_name=name or None)
                    for kind, spelling in _TYPES.items()
                    if (name := getattr(entity, kind)) is not None
                ),
                ops=tuple(
                    OpData(key=key, value=f64(0.0 if value is None else float(value)), remove=value is None)
                    for key, value in changes.items()
                ),
            )
            for entity, changes in alterations.items()
        ),
        validate_only=validate_only,
    )
    response = await cluster.retry(lambda: cluster.to_controller(ApiKey.ALTER_CLIENT_QUOTAS, message))
    return {
        (entity := _entity(entry.entity)): answer_error(
            int(entry.error_code), f"quotas of {spelled(entity)}", entry.error_message
        )
        for entry in response.entries
        if entry.error_code
    }


def spelled(entity: QuotaEntity) -> str:
    """An entity as text, such as `user alice, default client-id`."""
    parts = [
        f"default {spelling}" if name == DEFAULT_NAME else f"{spelling} {name}"
        for kind, spelling in _TYPES.items()
        if (name := getattr(entity, kind)) is not None
    ]
    return ", ".join(parts)


def _check(components: Mapping[str, str | None]) -> None:
    for kind in components:
        if kind not in _TYPES:
            raise ArgumentError(f"{kind!r} is not a component of a quota entity; use {', '.join(_TYPES)}")


def _entity(found: Any) -> QuotaEntity:
    spellings = {spelling: kind for kind, spelling in _TYPES.items()}
    return QuotaEntity(
        **{
            spellings[each.entity_type]: DEFAULT_NAME if each.entity_name is None else each.entity_name
            for each in found
            if each.entity_type in spellings
        }
    )


def _order(entity: QuotaEntity) -> tuple[tuple[bool, str], ...]:
    return tuple((name is not None, name or "") for name in (entity.ip, entity.user, entity.client_id))
