"""`ottla profile`: named connections, so that commands need no `--bootstrap`."""
