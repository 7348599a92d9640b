"""The state of a group on one cluster, also if the group does not exist or the user is not
permitted to describe it.
"""

from __future__ import annotations

from twinlog.cluster.groups.group_list import Group
from twinlog.cluster.groups.group_members import NOT_THERE, GroupSides, Member
from twinlog.errors import Unauthorized, Unreachable


def group(name: str, state: str) -> Group:
    return Group(name=name, protocol_type="consumer", state=state, kind="classic")


def test_unknown_state_and_members_are_null_with_a_reason() -> None:
    sides = GroupSides(
        groups={name: group(name, "Stable") for name in ("busy", "mute")}
        | {"idle": group("idle", "Empty")},
        members={"busy": (Member("till", "/10.0.0.7"),), "mute": Unreachable("no broker")},
        unseen={"hidden": Unauthorized("grant DESCRIBE")},
    )
    shown = {name: sides.of(name).as_json() for name in ("busy", "idle", "mute", "hidden", "none")}
    assert shown == {
        "busy": {"state": "Stable", "members": 1, "problem": ""},
        "idle": {"state": "Empty", "members": 0, "problem": ""},
        "mute": {"state": "Stable", "members": None, "problem": str(Unreachable("no broker"))},
        "hidden": {"state": None, "members": None, "problem": str(Unauthorized("grant DESCRIBE"))},
        "none": {"state": "Dead", "members": 0, "problem": ""},
    }
    assert sides.of("none") == NOT_THERE
    assert [sides.of(one).is_active for one in ("busy", "mute", "idle", "hidden")] == [
        True,
        True,
        False,
        False,
    ]
