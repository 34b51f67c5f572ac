"""Assembles the controller: what commits metadata changes for this broker, and its part in the election."""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.configs.config_view import ConfigView
from ottla.broker.configs.topic_settings import validate_topic_configs
from ottla.controller.active_controller import ActiveController
from ottla.controller.controller import Controller
from ottla.env.world import World
from ottla.metadata.image import ClusterImage
from ottla.metadata.store import Lease, MetadataStore
from ottla.model.ids import BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """`controller` commits what requests ask this broker for; `active` stands for election and works when elected."""

    controller: Controller
    active: ActiveController


def build_controllers(
    broker_id: BrokerId,
    world: World,
    store: MetadataStore,
    configs: ConfigView,
    *,
    image: Callable[[], ClusterImage],
    is_registered: Callable[[], bool],
) -> Controllers:
    """The controllers of a broker that has not stood for election yet."""

    def controller_for(lease: Lease | None) -> Controller:
        return Controller(
            store,
            image,
            world.random,
            defaults=configs.topic_defaults,
            validate_configs=lambda given: validate_topic_configs(given, configs.current),
            rules_of=configs.rules_of,
            lease=lease,
        )

    config = configs.static
    active = ActiveController(
        broker_id,
        store,
        image,
        world.clock,
        controller_for=controller_for,
        is_registered=is_registered,
        rebalance_seconds=config.leader_imbalance_check_interval_seconds
        if config.auto_leader_rebalance_enable
        else None,
    )
    return Controllers(controller=controller_for(None), active=active)
