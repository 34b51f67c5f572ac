"""Decides changes of the cluster's finalized features. Pure.

All updates of a request are made, or none. The rules are Kafka's: every registered broker must support the new level, a
lower level must be requested as a downgrade, and `metadata.version` cannot be lowered because a lower one would lose
metadata.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.controller.decisions import ControllerDecision
from ottla.metadata.features import FIRST_SUPPORTED, METADATA_VERSION, SUPPORTED_FEATURES, UNSUPPORTED, FeatureRange
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import FEATURES_KEY, FeaturesRecord, encode
from ottla.metadata.store import Put
from ottla.model.errors import InvalidUpdateVersionError
from ottla.model.upgrade_type import UpgradeType


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """A new level of a feature; 0 disables it. `upgrade_type` may be a number that no `UpgradeType` has."""

    feature: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def decide_features(
    image: ClusterImage, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
) -> ControllerDecision[None]:
    """Sets the levels of features. Raises InvalidUpdateVersionError, and changes none, if one of them is refused."""
    wanted = dict(image.features)
    first = {update.feature: update for update in reversed(updates)}
    for update in (each for each in updates if first[each.feature] is each):
        fault = _fault(image, update)
        if fault is not None:
            raise InvalidUpdateVersionError(
                f"no feature was updated: {update.feature} cannot be {update.level}: {fault}"
            )
        wanted[update.feature] = update.level
    if validate_only or wanted == dict(image.features):
        return ControllerDecision()
    value = encode(FeaturesRecord(levels=wanted))
    return ControllerDecision(operations=(Put(FEATURES_KEY, value, image.revision_of(FEATURES_KEY)),))


def _fault(image: ClusterImage, update: FeatureUpdate) -> str | None:
    """Why a level is refused."""
    if update.upgrade_type not in set(UpgradeType):
        return f"{update.upgrade_type} is not an upgrade type"
    if update.level < 0:
        return "a level cannot be below 0"
    for broker in sorted(image.brokers):
        supported = supported_by(image.brokers[broker], update.feature)
        if not supported.supports(update.level):
            what = "does not support this feature" if supported.highest == 0 else f"supports levels {supported}"
            return f"broker {broker} {what}"
    if update.feature not in SUPPORTED_FEATURES:
        return "unknown feature"
    current = image.features.get(update.feature, 0)
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return f"the level is {current}; a downgrade cannot raise it"
    if update.level < current:
        if update.upgrade_type == UpgradeType.UPGRADE:
            return f"the level is {current}; a lower level must be requested as a downgrade"
        if update.feature == METADATA_VERSION:
            return f"the level is {current}; older versions may lack metadata that this cluster uses"
    return None


def supported_by(broker: BrokerImage, feature: str) -> FeatureRange:
    """The levels of a feature that a registered broker supports."""
    if not broker.features:
        return FIRST_SUPPORTED.get(feature, UNSUPPORTED)
    return next((FeatureRange(low, high) for name, low, high in broker.features if name == feature), UNSUPPORTED)
