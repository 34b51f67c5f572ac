"""Metadata and rules that a new version takes over from the version before it and from the config."""

from dataclasses import replace

from ottla.registry.state.candidates import Candidate
from ottla.registry.state.metadata import (
    CONFLUENT_VERSION,
    merge_metadata,
    merge_rule_sets,
    with_confluent_version,
    without_empty,
)
from ottla.registry.state.record_formats import Config
from ottla.registry.state.registry_image import StoredSchema


def merged_with_defaults(
    config: Config,
    candidate: Candidate,
    previous: StoredSchema | None,
    version: int | None = None,
    *,
    pinned: bool = False,
) -> Candidate:
    """The candidate with defaults of the config below its metadata and rules, and overrides above them.

    What it does not have itself comes from the previous version. With `version`, the property `confluent:version` is
    set to it if the property is there, or if the request pins a version. An empty rule set takes over none, and is None
    in the result.
    """
    metadata = candidate.metadata or (previous.metadata if previous is not None else None)
    metadata = merge_metadata(merge_metadata(config.default_metadata, metadata), config.override_metadata)
    rules = candidate.rule_set or (previous.rule_set if previous is not None else None)
    rules = merge_rule_sets(merge_rule_sets(config.default_rule_set, rules), config.override_rule_set)
    has_version = metadata is not None and CONFLUENT_VERSION in metadata.texts
    if version is not None and (pinned or has_version):
        metadata = with_confluent_version(metadata, version)
    return replace(candidate, metadata=metadata, rule_set=without_empty(rules))
