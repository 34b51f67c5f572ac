"""Finalized features: which levels are accepted, and what is stored."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from ottla.controller.features_state import FeatureUpdate, decide_features
from ottla.metadata.features import SUPPORTED_FEATURES, unsupported_levels
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import FEATURES_KEY, FeaturesRecord, decode
from ottla.metadata.store import Put
from ottla.model.errors import InvalidUpdateVersionError
from ottla.model.ids import BrokerId
from ottla.model.upgrade_type import UpgradeType

SUPPORTED = tuple((name, *supported) for name, supported in SUPPORTED_FEATURES.items())
LEVELS = {"metadata.version": 30, "group.version": 1, "transaction.version": 1}


def broker(number: int, features: tuple[tuple[str, int, int], ...] = SUPPORTED) -> BrokerImage:
    return BrokerImage(id=BrokerId(number), host="h", port=1, features=features)


IMAGE = ClusterImage(
    brokers=MappingProxyType({BrokerId(1): broker(1), BrokerId(2): broker(2)}),
    features=MappingProxyType(LEVELS),
    revisions=MappingProxyType({FEATURES_KEY: 5}),
)


def update(feature: str, level: int, upgrade_type: int = UpgradeType.UPGRADE) -> FeatureUpdate:
    return FeatureUpdate(feature=feature, level=level, upgrade_type=upgrade_type)


def stored(*updates: FeatureUpdate, image: ClusterImage = IMAGE) -> dict[str, int]:
    (put,) = decide_features(image, updates).operations
    assert isinstance(put, Put)
    assert (FEATURES_KEY, 5) == (put.key, put.expected)
    return decode(put.key, put.value, FeaturesRecord).levels


def test_an_upgrade_is_stored_with_all_other_levels() -> None:
    assert {**LEVELS, "transaction.version": 2} == stored(update("transaction.version", 2))


@pytest.mark.parametrize("kind", [UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE])
def test_a_downgrade_is_stored(kind: UpgradeType) -> None:
    assert {**LEVELS, "group.version": 0} == stored(update("group.version", 0, kind))


def test_the_first_of_two_updates_of_a_feature_counts() -> None:
    assert {**LEVELS, "transaction.version": 2} == stored(
        update("transaction.version", 2), update("transaction.version", 0, UpgradeType.SAFE_DOWNGRADE)
    )


@pytest.mark.parametrize("level", [1, 30])
def test_a_level_that_is_in_force_changes_nothing(level: int) -> None:
    name = "transaction.version" if level == 1 else "metadata.version"
    assert () == decide_features(IMAGE, [update(name, level)]).operations


def test_validation_changes_nothing() -> None:
    assert () == decide_features(IMAGE, [update("transaction.version", 2)], validate_only=True).operations
    with pytest.raises(InvalidUpdateVersionError):
        decide_features(IMAGE, [update("transaction.version", 3)], validate_only=True)


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (update("transaction.version", 3), "broker 1 supports levels 0 to 2"),
        (update("metadata.version", 6, UpgradeType.UNSAFE_DOWNGRADE), "broker 1 supports levels 7 to 30"),
        (update("transaction.version", -1), "cannot be below 0"),
        (update("transaction.version", 0), "requested as a downgrade"),
        (update("transaction.version", 2, UpgradeType.SAFE_DOWNGRADE), "a downgrade cannot raise it"),
        (update("transaction.version", 2, 0), "0 is not an upgrade type"),
        (update("metadata.version", 29, UpgradeType.SAFE_DOWNGRADE), "older versions may lack metadata"),
        (update("metadata.version", 29, UpgradeType.UNSAFE_DOWNGRADE), "older versions may lack metadata"),
        (update("no.such.version", 1), "broker 1 does not support this feature"),
        (update("no.such.version", 0), "unknown feature"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_refused_update_refuses_all(refused: FeatureUpdate, why: str) -> None:
    with pytest.raises(InvalidUpdateVersionError, match=why):
        decide_features(IMAGE, [update("group.version", 0, UpgradeType.SAFE_DOWNGRADE), refused])


def test_every_registered_broker_must_support_a_level() -> None:
    old = replace(
        IMAGE, brokers=MappingProxyType({**IMAGE.brokers, BrokerId(9): broker(9, (("group.version", 0, 1),))})
    )
    with pytest.raises(InvalidUpdateVersionError, match="broker 9 does not support this feature"):
        decide_features(old, [update("transaction.version", 2)])


def test_a_broker_that_does_not_say_what_it_supports_is_an_old_one() -> None:
    image = replace(IMAGE, brokers=MappingProxyType({BrokerId(1): broker(1, ())}))
    assert {**LEVELS, "transaction.version": 2} == stored(update("transaction.version", 2), image=image)
    with pytest.raises(InvalidUpdateVersionError, match="broker 1 supports levels 0 to 2"):
        decide_features(image, [update("transaction.version", 3)])


def test_levels_that_a_broker_does_not_support() -> None:
    assert [] == unsupported_levels(LEVELS)
    assert [
        "group.version is 2, but this broker supports 0 to 1",
        "new.version is 1, but this broker supports no level of it",
    ] == unsupported_levels({"group.version": 2, "new.version": 1, "absent.version": 0})
