"""The walk of `docs/control-plane.md`, with mirrors that need no Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.mirror_process import Driver
from tests.support.monitor import LOCAL, ask
from twinlog.control.web.address import Address

pytestmark = pytest.mark.broker


def flow_at(address: Address) -> tuple[str, int]:
    (one,) = ask(address, "/api/v1/flows").json["flows"]
    return one["state"], one["generation"]


@pytest.mark.long
def test_a_newcomer_s_own_mirrors_take_over_and_nothing_is_missing(tmp_path: Path) -> None:
    with Command(tmp_path / "demo", "demo", "--no-mirror", "--rate", "200") as demo:
        eventually(lambda: "twinlog mirror " in demo.stdout)
        found = re.search(r"^twinlog mirror (\S+)$", demo.stdout, re.MULTILINE)
        assert found is not None
        config = Path(found[1])
        with Driver(config, listen=LOCAL) as first:
            address = first.served()
            eventually(lambda: flow_at(address) == ("RUNNING", 0))
            eventually(lambda: "identical: " in demo.stdout)
            with Driver(config, listen=address) as second:
                second.until("STANDBY")
                first.kill()
                assert second.served() == address
                eventually(lambda: flow_at(address) == ("RUNNING", 1))
                demo.terminate()
                assert demo.wait() == 0
    assert demo.stdout.splitlines()[-1] == "source and target are identical"
