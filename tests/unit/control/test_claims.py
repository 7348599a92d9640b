"""How long a changed configuration waits for the lanes of a process that was not shut down
cleanly.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from twinlog.config.load import load
from twinlog.control.leading.claims import FlowClaims
from twinlog.control.leading.lead import SetupWaiting
from twinlog.lane import late_requests
from twinlog.mirror.state.generations import Claim, FlowHistory

CLAIM = Claim(
    flow="A->B",
    generation=3,
    claimant="c",
    producer_id=9,
    meaning="another",
    host="h",
    pid=1,
    started_ms=0,
    source_cluster_id="a",
    target_cluster_id="b",
)


@pytest.fixture
def ours(tmp_path: Path) -> FlowClaims:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "A->B.enabled = true\nA->B.topics = t\n"
    )
    (flow,) = load(file, environment={}).flows
    return FlowClaims(config=flow, claimant="c", log_once=lambda _: None)


def history(generation: int) -> FlowHistory:
    return FlowHistory(latest=structs.replace(CLAIM, generation=generation), is_closed=False)


def test_each_generation_is_waited_for_separately(
    ours: FlowClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("twinlog.control.leading.claims.time.monotonic", lambda: now)
    with pytest.raises(SetupWaiting):
        ours._check_meaning(history(3), fresh_id=False)
    now += late_requests.wait_s()
    ours._check_meaning(history(3), fresh_id=False)
    with pytest.raises(SetupWaiting, match="was not shut down cleanly"):
        ours._check_meaning(history(4), fresh_id=False)
