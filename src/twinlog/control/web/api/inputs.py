"""The types of queries and bodies of `/api/v1`. They reject unknown names, so that misspelt names
are reported.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from twinlog.codes import PartitionState
from twinlog.config.keys.key_table import DEFINITIONS

MOST_ROWS: Final = 1000
MOST_TOPICS: Final = 50
MOST_WANTED: Final = 500
"""Maximum number of topics in a wanted state."""
LONGEST_REASON: Final = 500
LEAST_RATE: Final = DEFINITIONS["twinlog.max.bytes.per.second"].low or 1
MOST_RATE: Final = (1 << 63) - 1


def _integral(value: object) -> object:
    """Convert a float such as 5000.0 to an integer, because JSON has only one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Rate = Annotated[int, Field(ge=LEAST_RATE, le=MOST_RATE), BeforeValidator(_integral)]


class Input(BaseModel):
    """Base of queries and bodies."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class PageQuery(Input):
    """Which rows of a list to return."""

    offset: int = Field(default=0, ge=0, le=10_000_000)
    """Number of matching rows to skip."""
    limit: int = Field(default=100, ge=1, le=MOST_ROWS)
    """Maximum number of rows."""


class PartitionQuery(PageQuery):
    """Filter and order of partitions."""

    topic: str = ""
    """Only topics whose name contains this text."""
    of_topic: str = ""
    """Only partitions of the topic with exactly this name."""
    state: PartitionState | None = None
    """Only partitions in this state."""
    code: str = ""
    """Only partitions with this code."""
    sort: Literal[
        "topic", "-topic", "lag", "-lag", "lossRecords", "-lossRecords", "lossMs", "-lossMs",
        "keptMs", "-keptMs", "records", "-records", "sinceMs", "-sinceMs",
    ] = "topic"  # fmt: skip
    """Sort column. A minus before its name reverses the order."""


class TopicQuery(PageQuery):
    """Filter and order of topics."""

    topic: str = ""
    """Only topics whose name contains this text."""
    state: PartitionState | None = None
    """Only topics of which a partition is in this state."""
    code: str = ""
    """Only topics of which a partition has this code."""
    sort: Literal[
        "topic", "-topic", "state", "-state", "lag", "-lag", "lossRecords", "-lossRecords",
        "lossMs", "-lossMs", "keptMs", "-keptMs", "records", "-records", "bytes", "-bytes",
        "partitions", "-partitions", "unusualPartitions", "-unusualPartitions",
    ] = "topic"  # fmt: skip
    """Sort column. A minus before its name reverses the order. The worst state is last."""


class LogsQuery(Input):
    """Selection of partitions."""

    topic: Name
    """Source topic."""
    partitions: str = Field(max_length=1000, pattern=r"^[0-9]{1,9}(,[0-9]{1,9}){0,99}$")
    """Partition numbers separated by commas; at most 100."""


class GroupQuery(Input):
    """Selection of groups."""

    group: str = ""
    """Only this group."""


class EventQuery(Input):
    """Selection of events."""

    since: int = Field(default=0, ge=0, le=MOST_RATE)
    """Only events after this number."""
    flow: str = ""
    """Only events of this flow."""
    limit: int = Field(default=100, ge=1, le=MOST_ROWS)
    """Maximum number of events. If there are more, the newest are returned."""


class DiffQuery(Input):
    """Scope of a comparison."""

    topics: str | None = Field(default=None, max_length=1000)
    """A regular expression for whole source topics."""
    all: bool = False
    """Also return what the flow does not sync, with the reason."""


class Wish(Input):
    """A command with its reason."""

    model_config = ConfigDict(strict=True)

    reason: str = Field(default="", max_length=LONGEST_REASON)
    """Reason of the command. It is shown in the status."""
    dry_run: bool = False
    """Return what would change, and write nothing."""


class LimitWish(Wish):
    """A rate limit for a flow."""

    bytes_per_second: Rate | None
    """Maximum bytes per second. null: use the configured limit."""


class TopicWish(Wish):
    """A command for topics of a flow."""

    topics: list[Name] = Field(min_length=1, max_length=MOST_TOPICS)
    """Names or regular expressions, as in the key `topics`."""


class WantedState(LimitWish):
    """Everything that commands can set for a flow, except promotions."""

    paused: bool
    """Whether the whole flow is paused."""
    paused_topics: list[Name] = Field(max_length=MOST_WANTED)
    """Names of the topics that are paused. All other topics are resumed."""
    released_topics: list[Name] = Field(max_length=MOST_WANTED)
    """Names of the topics that are not mirrored, so that other clients may write to their remote
    topics. All other topics are mirrored again.
    """
