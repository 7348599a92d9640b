"""The HTTP statuses of errors."""

from __future__ import annotations

import pytest

from twinlog.control.web.problem import status_of
from twinlog.errors import FlowError, TwinlogError, Unreachable


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (FlowError("the flow was never copied", code="NOT_COPIED"), 409),
        (Unreachable("the cluster does not respond"), 503),
        (TwinlogError("a bug", code="INTERNAL"), 500),
    ],
)
def test_status_shows_whether_state_cluster_or_twinlog_is_the_cause(
    error: TwinlogError, status: int
) -> None:
    assert status_of(error) == status
