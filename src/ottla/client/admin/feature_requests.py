"""Admin requests about the features of the cluster: describe, update."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.upgrade_type import UpgradeType
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMetadata:
    """The features of a cluster. A feature that is not in `finalized` is disabled."""

    finalized: dict[str, int]
    """The levels in force, by name."""
    finalized_epoch: int | None
    """Increases with each change of `finalized`; None if the broker does not know."""
    supported: dict[str, tuple[int, int]]
    """The lowest and the highest level that the broker supports, by name."""


async def describe_features(cluster: Cluster) -> FeatureMetadata:
    """The features, as some broker knows them."""
    from ottla.protocol.newer_messages import ApiVersionsRequest

    message = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
    response = await cluster.retry(lambda: cluster.to_any(ApiKey.API_VERSIONS, message))
    if response.error_code:
        raise answer_error(int(response.error_code), "the features")
    epoch = int(response.finalized_features_epoch)
    return FeatureMetadata(
        finalized={each.name: int(each.max_version_level) for each in response.finalized_features},
        finalized_epoch=epoch if epoch >= 0 else None,
        supported={each.name: (int(each.min_version), int(each.max_version)) for each in response.supported_features},
    )


async def update_features(
    cluster: Cluster,
    levels: Mapping[str, int],
    upgrade_type: UpgradeType,
    *,
    validate_only: bool,
    timeout_ms: int,
) -> None:
    """Sets the levels of features, all or none."""
    from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
    from kio.static.primitive import i8, i16

    message = UpdateFeaturesRequest(
        timeout=milliseconds(timeout_ms),
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=i16(level), upgrade_type=i8(upgrade_type))
            for name, level in levels.items()
        ),
        validate_only=validate_only,
    )

    async def ask() -> None:
        response = await cluster.to_controller(ApiKey.UPDATE_FEATURES, message)
        if response.error_code:
            raise answer_error(int(response.error_code), "the update of features", response.error_message)

    await cluster.retry(ask, timeout_ms=timeout_ms)
