"""Errors of the sink. Each says what is written, what is not, and what to do."""

from ottla.model.errors import DeniedError, FencedError, InvalidRequestError, OttlaError


class SinkTakenError(InvalidRequestError):
    """Another query writes, or wrote, under the same sink id."""


class LaterBatchError(InvalidRequestError):
    """The sink already has a later batch than the one to be written."""


class DecisionDeniedError(DeniedError):
    """ACLs do not let the user store the decisions of the sink."""


class ReplacedDriverError(FencedError):
    """Another driver has taken over the sink."""


class BatchNotWrittenError(OttlaError):
    """Transactions of a batch were aborted before they were committed; none of their records is visible."""


class BatchTornError(OttlaError):
    """A part of a batch is committed, the rest was aborted, and the rows of this run differ from the missing ones."""


class OutcomeUnknownError(OttlaError):
    """The outcome of a decided transaction is unknown, for now or for good."""
