"""What whoever led the flow last reported of it: the only witness of what a lost source had."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from twinlog.control.cutover.scope import CutoverScope
from twinlog.errors import TwinlogError
from twinlog.mirror.names.naming import STATUS_TOPIC
from twinlog.mirror.state.published import Behind, PublishedStatus
from twinlog.model import TopicPartition
from twinlog.quantities import count, duration, plural
from twinlog.survey.leader_status import leader_status


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestStatus:
    """The newest status row, or why there is none."""

    status: PublishedStatus | None
    problem: str = ""

    @property
    def is_of_now(self) -> bool:
        """Whoever wrote it runs, as far as can be seen."""
        return self.status is not None and self.status.is_of(int(time.time() * 1000))

    def behind(self, tp: TopicPartition) -> Behind | None:
        """What was known to exist of a partition and not to be on the target."""
        rows = () if self.status is None else self.status.behind
        return next((one for one in rows if (one.topic, one.partition) == tp), None)

    def line(self) -> str:
        """In words."""
        one = self.status
        if one is None:
            return f"no mirror has told what the source had: {self.problem}"
        age = duration(max(0, int(time.time() * 1000) - one.at_ms) / 1000)
        who = f"the mirror on {one.where} said {age} ago"
        if one.loss_records < 0:
            return f"{who} that it did not know what the source had"
        lost = f"{count(one.loss_records)} records of the last {duration(one.loss_ms / 1000)}"
        if one.loss_records == 0:
            lost = f"nothing that was there {duration(max(0, one.loss_ms) / 1000)} before that"
        unknown = ""
        if one.loss_unknown:
            unknown = f"; of {plural(one.loss_unknown, 'partition')} it was not known"
        return f"{who} that without the source {lost} would be lost{unknown}"

    def as_json(self) -> dict[str, Any]:
        one = self.status
        if one is None:
            return {"problem": self.problem}
        return {
            "at_ms": one.at_ms,
            "where": one.where,
            "state": one.state,
            "loss_records": one.loss_records,
            "loss_ms": one.loss_ms,
            "loss_unknown": one.loss_unknown,
        }


def newest_status(scope: CutoverScope) -> NewestStatus:
    """Of whatever age; what cannot be read is reported as well."""
    try:
        status = leader_status(scope.target, scope.name)
    except TwinlogError as error:
        return NewestStatus(status=None, problem=str(error))
    if status is None:
        return NewestStatus(status=None, problem=f"{STATUS_TOPIC} has no row of {scope.name}")
    return NewestStatus(status=status)
