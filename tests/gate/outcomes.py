"""The outcomes of a test run as a file: number of passed tests, and failed ones with their
messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["Outcomes", "outcomes_of"]

_GROUP: Final = re.compile(r"@[^@\]\[]*$")
"""The suffix that pytest-xdist appends to the ID of a test in a group."""
_MESSAGE_LENGTH: Final = 300


@dataclass(slots=True)
class Outcomes:
    """Number of tests by outcome. For each failed test, the first line of its message by the test's
    ID.
    """

    counts: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a file. If the run wrote none, no failures are known."""
        return cls(**json.loads(file.read_text())) if file.is_file() else cls()

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=1))


def outcomes_of(stats: dict[str, list[Any]]) -> Outcomes:
    """Return the outcomes in pytest's terminal reporter."""
    kinds = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
    counts = {kind: len(stats.get(kind, ())) for kind in kinds}
    return Outcomes(
        counts={kind: count for kind, count in counts.items() if count},
        failed=_failed([*stats.get("failed", ()), *stats.get("error", ())]),
    )


def _failed(reports: Iterable[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for report in reports:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash else str(report.longrepr)
        lines = message.strip().splitlines()
        found.setdefault(_GROUP.sub("", report.nodeid), lines[0][:_MESSAGE_LENGTH] if lines else "")
    return found
