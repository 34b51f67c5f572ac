"""Types and promises of the walk over a produced batch's records."""

from typing_extensions import Buffer

def survey(payload: Buffer, count: int, base_timestamp: int, oldest: int, newest: int) -> tuple[int, int, int]:
    """(largest timestamp or -1, records without a key, records with a timestamp outside of [oldest, newest]).

    A timestamp of -1 stands for none and is allowed. Raises `InvalidRecordError` unless the payload is exactly `count`
    well-formed records with the offset deltas 0, 1, 2 and so on.
    """

def find_faults(
    payload: Buffer, count: int, base_timestamp: int, oldest: int, newest: int, *, needs_keys: bool, faults_max: int
) -> list[tuple[int, int | None]]:
    """The records that a survey counted, by index: with None if the key is missing, else with the bad timestamp.

    At most `faults_max` of them.
    """
