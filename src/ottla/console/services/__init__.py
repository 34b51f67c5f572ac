"""What pages do, without HTTP: functions that take an `Access` and return frozen dataclasses."""
