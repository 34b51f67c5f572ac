"""The commands of `ottla`: one package each, named like the command; `command.py` has its Typer application `app`.

`serve` alone is parsed without Typer, so that a broker starts at once. The others use `ottla.client` and share
`command_runner.py` (from a command line to an exit status), `options.py` (shared options), `help_pages.py`, `output.py`
(tables for people, JSON for programs, escapes for terminals), `progress.py`, `confirmation.py`, and `durations.py` and
`topic_choices.py`, which parse what people write. `profile/store.py` decides which cluster a command connects to. The
work of a larger command is in the other files of its package; its pure parts are files of their own.

Exit status: 0 done, 1 refused by a broker or a problem was found, 2 wrong usage, 3 no broker can be reached, 130
interrupted. Errors go to stderr as messages; `OTTLA_DEBUG=1` adds the traceback.
"""
