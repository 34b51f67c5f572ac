"""The possible outcomes of a transaction; `transaction_inspection.py` finds them."""

from enum import StrEnum


class TransactionOutcome(StrEnum):
    """The outcome of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open, or after an older open transaction of the partition"
    UNKNOWN = "unknown, because its records are no longer in the log"
