"""Log lines about one flow. In a text log, a line begins with the flow's name. In a JSON log, the
flow is a field, and so are code, topic and partition if they are known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition


def code_among(values: Iterable[object]) -> str:
    """Return the code of the last error among a log line's values, or an empty text."""
    codes = [value.code for value in values if isinstance(value, TwinlogError)]
    return codes[-1] if codes else ""


NEWS: Final = {"news": True}
"""`extra` of an INFO line that is shown by default: good news, or a requested change."""


class FlowLog:
    """Writes log lines about one flow. Messages are formatted with `%`, as in `logging`."""

    def __init__(self, log: logging.Logger, flow: object) -> None:
        self._log = log
        self._flow = str(flow)

    def info(
        self,
        message: str,
        *values: object,
        partition: TopicPartition | None = None,
        code: str = "",
    ) -> None:
        """Log an event of normal operation."""
        self._write(logging.INFO, message, values, partition, code)

    def news(self, message: str, *values: object, topic: str = "", person: str = "") -> None:
        """Log good news, or a change that `person` requested. This line is shown by default."""
        about = {name: value for name, value in (("topic", topic), ("person", person)) if value}
        self._write(logging.INFO, message, values, None, "", about={**NEWS, **about})

    def warning(self, message: str, *values: object) -> None:
        """Log a warning. If `values` has an error, its code is a field of the line."""
        self._write(logging.WARNING, message, values, None, "")

    def bug(self, message: str, *values: object) -> None:
        """Log an error with the traceback of the current exception."""
        self._write(logging.ERROR, message, values, None, "", is_bug=True)

    def _write(
        self,
        level: int,
        message: str,
        values: tuple[object, ...],
        partition: TopicPartition | None,
        code: str,
        *,
        is_bug: bool = False,
        about: Mapping[str, str | bool] = MappingProxyType({}),
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        fields: dict[str, str | int] = {"flow": self._flow, **about}
        if partition is not None:
            fields |= partition._asdict()
        errors = [value for value in values if isinstance(value, TwinlogError)]
        if errors and errors[-1].partition is not None and partition is None:
            fields |= errors[-1].partition._asdict()
        if code := code or code_among(values):
            fields["code"] = code
        shown = tuple(v.without_flow() if isinstance(v, TwinlogError) else v for v in values)
        text = message % shown if shown else message
        self._log.log(level, "%s: %s", self._flow, text, extra=fields, exc_info=is_bug)
