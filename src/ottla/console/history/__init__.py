"""The past of charts beyond the console's own samples: from Prometheus, if one is configured.

`queries.py` has the one query of each kind of series; `answers.py` reads what Prometheus answers; `prometheus.py` asks
and remembers; `ranges.py` says which times a chart shows. `ottla.console.services.charts` joins it with the samples.
"""
