"""What can have become of a transaction; `transaction_inspection.py` finds out."""

from enum import StrEnum


class TransactionOutcome(StrEnum):
    """What can be said of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "not ended yet, or hidden behind an older transaction of that partition that is not ended yet"
    UNKNOWN = "no longer to be told, since its records are gone from the log"
