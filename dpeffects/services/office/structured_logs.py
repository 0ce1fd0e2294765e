"""Logs in JSON, a line for each event, without values: an exception is its type and place."""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any, TextIO

from dpeffects.services.office.database import now

_SAYS = ("request", "call", "status", "seconds", "trace")


class JsonLines(logging.Formatter):
    """What happened, as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record; messages of other packages could quote what they were given."""
        own = record.name.startswith(("dpeffects.", "uvicorn"))
        line: dict[str, Any] = {"time": now(), "level": record.levelname, "logger": record.name}
        line["event"] = record.getMessage() if own else ""
        line |= {name: getattr(record, name) for name in _SAYS if hasattr(record, name)}
        if record.exc_info and (error := record.exc_info[1]) is not None:
            frames = traceback.extract_tb(error.__traceback__)
            line["error"] = type(error).__name__
            line["place"] = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return json.dumps(line)


def log_as_json(stream: TextIO, level: int = logging.INFO) -> None:
    """Write all logs of this process there, and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], name != "uvicorn.access"
    logging.getLogger("alembic").setLevel(logging.WARNING)
