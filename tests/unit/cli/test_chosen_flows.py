"""The option `--flow` of the commands that write intents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from twinlog.cli.commands import steer
from twinlog.cli.commands.steer import _chosen
from twinlog.client.steering import Change
from twinlog.config.flow.schema import FlowConfig
from twinlog.config.load import load
from twinlog.errors import UsageError
from twinlog.mirror.state.intents import Intent, IntentKind

FILE = (
    "clusters = A, B, eu.1\n"
    "A.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\neu.1.bootstrap.servers = c:1\n"
    "A->B.enabled = true\nB->A.enabled = true\neu.1->B.enabled = true\n"
)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), ["A->B", "B->A", "eu.1->B"]),
        (("A->B",), ["A->B"]),
        (("A -> B", "A->B"), ["A->B"]),
        ((".*->B",), ["A->B", "eu.1->B"]),
        (("B->A", "e.*"), ["B->A", "eu.1->B"]),
        (("A:B",), ["A->B"]),
        ((".*:B", "A : B"), ["A->B", "eu.1->B"]),
    ],
    ids=str,
)
def test_flows_are_named_or_match(
    tmp_path: Path, names: tuple[str, ...], expected: list[str]
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    found = _chosen(load(file, environment={}).flows, names)
    assert sorted(str(one.flow) for one in found) == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [("A", "is not a flow of the file, which has "), ("(", "is no regular expression: ")],
)
def test_a_pattern_without_a_match_is_refused(tmp_path: Path, name: str, said: str) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    with pytest.raises(UsageError, match=f"--flow: .* {said}"):
        _chosen(load(file, environment={}).flows, (name,))


def test_only_flows_that_were_confirmed_are_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One flow is already promoted when the command asks for confirmation, so the question does not
    name it. Another operator may demote it before the answer. It must not be promoted then.
    """
    file = tmp_path / "mm2.properties"
    file.write_text(FILE)
    written: list[str] = []

    def apply(flows: Sequence[FlowConfig], *_: object, dry_run: bool, **__: object) -> list[Change]:
        names = [str(each.flow) for each in flows]
        if not dry_run:
            written.extend(names)
        intents = [
            Intent(
                flow=name,
                kind=IntentKind.PROMOTE,
                is_set=True,
                bytes_per_second=None,
                who="anna@ops",
                at_ms=1,
                reason="",
            )
            for name in names
        ]
        promoted = [intent if intent.flow == "B->A" else None for intent in intents]
        pairs = zip(intents, promoted, strict=True)
        return [Change(intent=intent, before=before) for intent, before in pairs]

    monkeypatch.setattr("twinlog.control.flow.wishes.apply_intents", apply)
    monkeypatch.setattr(steer, "require_an_answer", lambda **_: None)
    confirmed = ["A->B", "eu.1->B"]
    monkeypatch.setattr(
        steer, "is_confirmed", lambda names, _: sorted(names.split(",")) == confirmed
    )
    with click.Context(click.Command("promote")):
        steer.steer(file, lambda _: [], flows=(), reason="", dry_run=False, yes=False)
    assert sorted(written) == confirmed
