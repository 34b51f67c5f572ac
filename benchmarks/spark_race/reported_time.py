"""A clock for `benchmarks.measure` that shows what Spark, or another run, says that something took."""


class ReportedTime:
    """A clock that moves only by the time that was reported to it."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        """Seconds reported so far."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Reports some more."""
        self._now += seconds
