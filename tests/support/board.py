"""The expressions that the dashboard queries from Prometheus, panel by panel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["BOARD", "Query", "board", "queries"]

BOARD: Final = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "twinlog-mirror.json"


class Query(NamedTuple):
    """One expression of a panel, as written in the dashboard's file."""

    panel: str
    expression: str

    def of(self, source: str, target: str) -> str:
        """Return the expression with its variables replaced as Grafana does. Rates are calculated
        over ten scrapes of one second each.
        """
        values = {"$source": source, "$target": target, "$__rate_interval": "10s"}
        expression = self.expression
        for name, value in values.items():
            expression = expression.replace(name, value)
        assert "$" not in expression, expression
        return expression


def board(file: Path = BOARD) -> Any:
    """Return the content of the dashboard's file."""
    return json.loads(file.read_text())


def queries(file: Path = BOARD) -> list[Query]:
    """Return every expression of every panel."""
    return [
        Query(panel["title"], target["expr"])
        for panel in board(file)["panels"]
        for target in panel.get("targets", ())
    ]
