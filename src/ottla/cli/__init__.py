"""The commands of `ottla`: one module each, named like the command, with a Typer application `app`.

`serve.py` alone is parsed without Typer, so that a broker starts at once. The others stand on `ottla.client` and share
`running.py` (from a command line to an exit status), `options.py` (what every command takes), `output.py` (tables for
people, JSON for programs), `progress.py` and `asking.py` (before something is lost). The work of a command that does
much is beside it: `producing.py`, `consuming.py`, `group_views.py`, `resetting.py`, `bench_loads.py`,
`bench_latency.py`, `pipeline_progress.py`, `pipeline_status.py`. What has no input or output of its own is apart,
too: `record_lines.py` and `record_formats.py` turn lines into records and back, `positions.py`, `durations.py` and
`topic_choices.py` read what people write, `offset_resets.py` decides where a group goes on, `log_files.py` takes log
files apart, `bench_results.py` takes percentiles.

Exit status: 0 done, 1 a broker said no or something is wrong, 2 wrong usage, 3 no broker can be reached, 130
interrupted. Errors go to stderr, in words; `OTTLA_DEBUG=1` adds the traceback.
"""
