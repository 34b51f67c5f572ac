"""The commands of `ottla`: one module each, named like the command, with a Typer application `app`.

`serve.py` alone is parsed without Typer, so that a broker starts at once. The others use `ottla.client` and share
`running.py` (from a command line to an exit status), `options.py` (shared options), `profiles.py` (which cluster to
connect to), `help_pages.py`, `output.py` (tables for people, JSON for programs, escapes for terminals), `progress.py`
and `asking.py`. The work of a larger command is beside it: `producing.py`, `consuming.py`, `group_consuming.py`,
`last_records.py`, `record_sink.py`, `group_views.py`, `resetting.py`, `broker_states.py`, `bench_loads.py`,
`bench_latency.py`, `pipeline_progress.py`, `pipeline_status.py`. Pure parts are apart: `record_lines.py` and
`record_formats.py` turn lines into records and back, `positions.py`, `durations.py` and `topic_choices.py` parse what
people write, `offset_resets.py` plans new offsets of a group, `log_files.py` reads log files, `bench_results.py`
computes percentiles.

Exit status: 0 done, 1 refused by a broker or a problem was found, 2 wrong usage, 3 no broker can be reached, 130
interrupted. Errors go to stderr as messages; `OTTLA_DEBUG=1` adds the traceback.
"""
