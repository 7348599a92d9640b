"""Log lines that are about one flow: its name stands in front of the message, and a JSON log has it
as a field, with the code, the topic and the partition where they are known.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from twinlog.errors import TwinlogError
from twinlog.model import TopicPartition


def code_among(values: Iterable[object]) -> str:
    """That of the last error among what a message is made of; empty without one."""
    codes = [value.code for value in values if isinstance(value, TwinlogError)]
    return codes[-1] if codes else ""


NEWS: Final = {"news": True}
"""`extra` of a line at INFO that people see all the same: good news, or what somebody wanted."""


class FlowLog:
    """Writes to `log`; messages are formatted with `%` as the logging module does."""

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
        """An event of normal operation."""
        self._write(logging.INFO, message, values, partition, code)

    def news(self, message: str, *values: object, topic: str = "", person: str = "") -> None:
        """Something good, or wanted (by that person), that people should know."""
        about = {name: value for name, value in (("topic", topic), ("person", person)) if value}
        self._write(logging.INFO, message, values, None, "", about={**NEWS, **about})

    def warning(self, message: str, *values: object) -> None:
        """Something that people should know; the code is that of an error among the values."""
        self._write(logging.WARNING, message, values, None, "")

    def bug(self, message: str, *values: object) -> None:
        """With the traceback of the exception that is being handled."""
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
