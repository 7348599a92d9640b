"""Names of a drill: everything whose name begins with its mark belongs to it, and is removed.
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
    """The part of a drill that is rehearsed."""

    SWITCHOVER = "switchover"
    FAILOVER = "failover"


@dataclass(frozen=True, slots=True)
class DrillNames:
    """The names of one drill; `mark` is in all of them."""

    mark: str

    @classmethod
    def new(cls) -> DrillNames:
        return cls(f"{PREFIX}{secrets.token_hex(4)}")

    def alias(self, part: Part, alias: str) -> str:
        """Return the alias of a cluster in the drill's configuration."""
        return f"{self.mark}{part.value[0]}-{alias}"

    def topic(self, part: Part, number: int) -> str:
        """Return the name of a topic on the source."""
        return f"{self.mark}{part.value[0]}-{number}{SUFFIX}"

    def group(self, part: Part, number: int) -> str:
        """Return the name of the group that reads that topic."""
        return f"{self.mark}{part.value[0]}-{number}"
