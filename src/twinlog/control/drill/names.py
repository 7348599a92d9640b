"""Names of a drill: what begins with them is nobody else's, and is removed.

Topics end in `.internal`, so that mirrors with the usual `topics.exclude` leave them alone.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PREFIX: Final = "twinlog-drill-"
SUFFIX: Final = ".internal"


class Part(StrEnum):
    """What is rehearsed."""

    SWITCHOVER = "switchover"
    FAILOVER = "failover"


@dataclass(frozen=True, slots=True)
class DrillNames:
    """Of one drill; `mark` is in all of them."""

    mark: str

    @classmethod
    def new(cls) -> DrillNames:
        return cls(f"{PREFIX}{secrets.token_hex(4)}")

    def alias(self, part: Part, alias: str) -> str:
        """What a cluster is called in the drill's configuration."""
        return f"{self.mark}{part.value[0]}-{alias}"

    def topic(self, part: Part, number: int) -> str:
        """On the source."""
        return f"{self.mark}{part.value[0]}-{number}{SUFFIX}"

    def group(self, part: Part, number: int) -> str:
        """The application that reads that topic."""
        return f"{self.mark}{part.value[0]}-{number}"
