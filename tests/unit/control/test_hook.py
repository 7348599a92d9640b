"""Hooks of a switchover run in a shell. The exit code of a hook decides whether it succeeded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.properties import loader
from twinlog.control.cutover.scope import CutoverScope
from twinlog.control.cutover.switchover import run_hook
from twinlog.control.flow.wiring import flow_setup
from twinlog.errors import FlowError


def scope(tmp_path: Path) -> CutoverScope:
    """The scope of a flow in whose topic names the clusters are called `x` and `y`."""
    (flow,) = loader(tmp_path)("source.cluster.alias = x", "target.cluster.alias = y").flows
    return cast("CutoverScope", SimpleNamespace(config=flow, setup=flow_setup(flow), name="A->B"))


def test_a_hook_may_use_pipes_conjunctions_and_variables(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    run_hook(
        scope(tmp_path),
        f'echo "$TWINLOG_FLOW" | tr AB CD > {first} && echo "$TWINLOG_STEP" > {second}; echo done',
        "switch",
    )
    assert (first.read_text(), second.read_text()) == ("C->D\n", "switch\n")
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "done\n"), "stdout belongs to the command's own answer"


@pytest.mark.parametrize(
    ("hook", "code"),
    [
        ("echo no | grep yes", 1),
        ("true && exit 7", 7),
        ("false && true", 1),
        ("echo yes | sh -c 'cat >&2; exit 3'", 3),
        ("./there-is-no-such-hook", 127),
        ("echo 'unclosed", 2),
    ],
)
def test_the_exit_code_of_its_shell_ends_the_run(tmp_path: Path, hook: str, code: int) -> None:
    with pytest.raises(FlowError) as raised:
        run_hook(scope(tmp_path), hook, "switch")
    assert raised.value.code == "HOOK_FAILED"
    assert f"A->B: the hook for the step switch failed: its exit code is {code};" in str(
        raised.value
    )


def test_a_command_that_no_shell_can_be_given_is_a_failed_hook(tmp_path: Path) -> None:
    with pytest.raises(FlowError) as raised:
        run_hook(scope(tmp_path), "echo \0", "switch")
    assert raised.value.code == "HOOK_FAILED"


def test_a_hook_gets_the_names_of_clusters_that_commands_take(tmp_path: Path) -> None:
    """A hook gets the clusters' names in the file, because commands accept these names. It does not
    get the aliases that topic names have.
    """
    said = tmp_path / "said"
    run_hook(scope(tmp_path), f'echo "$TWINLOG_SOURCE $TWINLOG_TARGET" > {said}', "switch")
    assert said.read_text() == "A B\n"
