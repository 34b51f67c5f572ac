"""What a sink refuses, and what stops a query that writes: each says what is written, what is not, and what to do."""

from ottla.model.errors import FencedError, InvalidRequestError, OttlaError


class SinkTakenError(InvalidRequestError):
    """Another query writes, or wrote, under the same sink id."""


class LaterBatchError(InvalidRequestError):
    """The sink has a later batch than the one that is to be written."""


class ReplacedDriverError(FencedError):
    """Another driver has begun to decide for the sink."""


class BatchNotWrittenError(OttlaError):
    """A batch's transactions were aborted before they could be committed; nothing of them is visible. Run it again."""


class BatchTornError(OttlaError):
    """A part of a batch is committed, the rest is lost, and what was written anew does not match what is missing."""


class OutcomeUnknownError(OttlaError):
    """Whether a decided transaction is committed cannot be found out, now or any more."""
