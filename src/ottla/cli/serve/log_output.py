"""The log of the broker: lines of text, or one JSON object per line."""

import json
import logging
import sys
from typing import Final

from ottla.model.errors import InvalidConfigError

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object per log record: time, level, logger, message, and broker and traceback if any."""

    def __init__(self, broker: int | None = None) -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._broker is not None:
            line["broker"] = self._broker
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(log_format: str, level: str, broker: int | None = None) -> None:
    """Logs to stderr; stdout has only the `ready` line. With a broker id, each line has it: several brokers write to
    the same stream."""
    if log_format not in ("text", "json"):
        raise InvalidConfigError(f"--log-format {log_format}: expected text or json")
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise InvalidConfigError(f"--log-level {level}: expected debug, info, warning or error")
    handler = logging.StreamHandler(sys.stderr)
    text = _TEXT if broker is None else _TEXT.replace("%(name)s", f"[broker {broker}] %(name)s")
    handler.setFormatter(JsonFormatter(broker) if log_format == "json" else logging.Formatter(text))
    logging.basicConfig(level=number, handlers=[handler], force=True)
    # At INFO it logs each request to the schema registry.
    logging.getLogger("httpx").setLevel(max(number, logging.WARNING) if number > logging.DEBUG else number)
