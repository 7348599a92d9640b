"""What is known of a code: what happened, what to do, and whether it is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Retry(StrEnum):
    """When that which stopped is tried again, without anybody's doing."""

    SOON = "soon"
    """After a pause that grows, to half a minute at most: it may pass by itself."""
    LATER = "within 30 s"
    """It resumes once the cause is gone."""
    NO = "no"
    """It ends, and the command is run again; or nothing stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One row of docs/codes.md; texts are Markdown."""

    codes: tuple[str, ...]
    """More than one where all of them ask for the same."""
    meaning: str
    advice: str = ""
    """Empty where the message itself says all."""
    retry: Retry = Retry.NO
