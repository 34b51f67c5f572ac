"""The way of a request through the broker: context, admission, dispatch, throttling, counters; fetch sessions."""
