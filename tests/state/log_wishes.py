"""Hypothesis strategies for what is asked of a log: batches, markers, configurations."""

from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from ottla.records.layout import Codec, Marker, TimestampType
from ottla.storage.log_config import LogConfig
from tests.state.log_rig import Wish


def replicated(wish: Wish, gap: int) -> Wish:
    """The same as a leader sends it: nothing that it would have refused, and perhaps with offsets missing before it."""
    return replace(wish, sequence="next", epoch_step=max(0, wish.epoch_step), coordinator_step=0, gap=gap)


shares: Final = st.floats(0, 1, exclude_max=True)

_sizes = st.sampled_from([0, 20, 20, 100, 385, 1500])
"""385 bytes of value make a batch of 512 bytes with one record: a sector of the disk."""

_plain = st.builds(
    Wish,
    count=st.integers(1, 4),
    value_bytes=_sizes,
    codec=st.sampled_from(list(Codec)),
    age_ms=st.integers(-500, 3000),
)
_produced = st.builds(
    Wish,
    count=st.integers(1, 3),
    value_bytes=st.integers(0, 60),
    age_ms=st.integers(0, 100),
    producer=st.integers(0, 2),
    sequence=st.sampled_from(["next", "next", "next", "repeat", "gap", "high"]),
    epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
    transactional=st.booleans(),
)
markers: Final = st.builds(
    Wish,
    producer=st.integers(0, 2),
    epoch_step=st.sampled_from([0, 0, 0, 1, -1]),
    marker=st.sampled_from([Marker.ABORT, Marker.ABORT, Marker.COMMIT]),
    coordinator_step=st.sampled_from([0, 0, 1, -1]),
)
wishes: Final = st.lists(_plain | _produced, min_size=1, max_size=6)
_gaps = st.sampled_from([0, 0, 0, 1, 5])
_replicated = st.builds(replicated, _plain | _produced | markers, _gaps)
follower_wishes: Final = st.lists(_replicated, max_size=8)

configs: Final = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([1024, 2048, 6000]),
    segment_ms=st.sampled_from([5_000, 1_000_000]),
    index_interval_bytes=st.sampled_from([0, 128, 512]),
    segment_index_bytes=st.sampled_from([24, 48, 240, 4096]),
    retention_ms=st.sampled_from([-1, 10_000]),
    retention_bytes=st.sampled_from([-1, 4000]),
    timestamp_type=st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
    compression=st.sampled_from([None, None, None, Codec.ZSTD]),
    file_delete_delay_ms=st.just(2_000),
)
index_bytes: Final = st.sampled_from([24, 48, 240, 4096])
