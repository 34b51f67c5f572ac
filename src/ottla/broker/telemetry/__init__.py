"""Client telemetry (KIP-714): clients push their own metrics to the broker, which shows them at /metrics.

`subscriptions.py` computes which metrics a client is asked for, `telemetry_state.py` decides about each request,
`otlp.py` reads what was pushed, `client_series.py` keeps the newest values, and `client_telemetry.py` connects them for
the handlers. All except the last one are pure. `exposition.py` turns the values into Prometheus metrics. The configs of
subscriptions are defined in `ottla.metadata.configs.client_metrics_configs`.
"""
