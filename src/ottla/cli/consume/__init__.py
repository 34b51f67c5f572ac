"""`ottla consume`: records of topics to stdout or a file."""
