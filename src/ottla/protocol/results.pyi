"""Types of the compiled `results.pyx`."""

from typing import Final, final

@final
class ProduceResult:
    """One partition of a Produce request."""

    error_code: Final[int]
    base_offset: Final[int]
    append_time: Final[int]
    log_start_offset: Final[int]
    record_errors: Final[list[tuple[int, str | None]] | None]
    message: Final[str | None]
    leader: Final[tuple[int, int] | None]
    """(leader id, leader epoch) if another broker leads the partition."""

    def __init__(
        self,
        error_code: int,
        base_offset: int = -1,
        append_time: int = -1,
        log_start_offset: int = -1,
        record_errors: list[tuple[int, str | None]] | None = None,
        message: str | None = None,
        leader: tuple[int, int] | None = None,
    ) -> None: ...

@final
class FetchResult:
    """One partition of a Fetch request."""

    topic: Final[str | bytes]
    """The topic's name, or from v13 its id as 16 bytes."""
    partition: Final[int]
    error_code: Final[int]
    high_watermark: Final[int]
    last_stable_offset: Final[int]
    log_start_offset: Final[int]
    aborted: Final[list[tuple[int, int]] | None]
    """Aborted transactions as (producer id, first offset); None for readers of uncommitted records."""
    preferred_read_replica: Final[int]
    records: Final[object | None]
    """Any object, passed through to the pieces of the response; None with size 0 if there are no records."""
    size: Final[int]
    diverging: Final[tuple[int, int] | None]
    """(epoch, end offset) where the follower's log diverges."""
    leader: Final[tuple[int, int] | None]
    """(leader id, leader epoch) if another broker leads the partition."""

    def __init__(
        self,
        topic: str | bytes,
        partition: int,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        aborted: list[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        records: object | None = None,
        size: int = 0,
        diverging: tuple[int, int] | None = None,
        leader: tuple[int, int] | None = None,
    ) -> None: ...
