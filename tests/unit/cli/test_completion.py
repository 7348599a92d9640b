"""Shell completion of commands, options, and names from FILE and from running mirrors."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import ENTRY
from tests.support.eventually import PATIENCE_S
from tests.support.properties import BASE
from tests.support.snapshots import flow, partition
from twinlog.cli.commands.completion import SHELLS, VARIABLE
from twinlog.cli.main import ASKED_BY_SHELLS, run
from twinlog.control.watch.status_file import StatusFile

SHARE = Path(__file__).parents[3] / "share"
Offered = Callable[..., list[str]]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file with two flows in the working directory, and the status file of a mirror
    that runs it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("TWINLOG_SANDBOX", str(tmp_path / "sandbox"))
    path = tmp_path / "mm2.properties"
    path.write_text("\n".join([*BASE, "B->A.enabled = true", "A->B.topics = orders, pay.*"]))
    StatusFile(path).write([flow(partition("orders"), partition("payments"))])
    return path


@pytest.fixture
def offered(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Offered:
    """Return a function that returns the candidates which bash gets for the last word of a line."""

    def ask(*words: str) -> list[str]:
        assert file.exists()
        monkeypatch.setenv(VARIABLE, "bash_complete")
        monkeypatch.setenv("COMP_WORDS", "\n".join(["twinlog", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        assert run([]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out.splitlines()

    return ask


def test_commands_and_options(offered: Offered) -> None:
    assert offered("fl") == ["plain,flow"]
    assert offered("flow", "re") == ["plain,resume"]
    assert offered("mirror", "--log-") == ["plain,--log-file", "plain,--log-format"]
    assert offered("status", "--format", "y") == ["plain,yaml"]
    assert offered("mirror", "x", "--source-loss", "a") == ["plain,accept"]
    assert offered("explain", "GAP_W") == ["plain,GAP_WRITTEN"]


def test_files_are_the_shells_own(offered: Offered) -> None:
    assert offered("mirror", "mm") == ["file,mm"]
    assert offered("flow", "pause", "") == ["file,"]


@pytest.mark.parametrize("command", [("flow", "pause"), ("status",), ("export",)])
def test_flows_of_the_file_are_quoted(offered: Offered, command: tuple[str, ...]) -> None:
    line = (*command, "mm2.properties", "--flow")
    assert offered(*line, "") == ["plain,'A->B'", "plain,'B->A'"]
    assert offered(*line, "A") == ["plain,'A->B'"]
    assert offered(*line, "'A") == ["plain,A->B"], "bash closes the quote that is open"


def test_clusters_of_the_file(offered: Offered) -> None:
    assert offered("topology", "mm2.properties", "--cluster", "") == ["plain,A", "plain,B"]
    assert offered("mirror", "mm2.properties", "--clusters", "A,") == ["plain,A,B"]


def test_topics_of_the_file_and_of_the_mirror_that_runs(offered: Offered) -> None:
    line = ("topic", "pause", "mm2.properties", "--topics")
    assert offered(*line, "") == ["plain,orders", "plain,'pay.*'", "plain,payments"]
    assert offered(*line, "orders,paym") == ["plain,orders,payments"]
    assert offered("export", "mm2.properties", "--topic", "A.") == [
        "plain,A.orders",
        "plain,A.payments",
    ]


def test_a_file_that_cannot_be_read_offers_nothing(offered: Offered, tmp_path: Path) -> None:
    (tmp_path / "bad.properties").write_text("clusters = A, B\nA->B.twinlog.nothing = 1\n")
    for name in ("bad.properties", "missing.properties"):
        assert offered("flow", "pause", name, "--flow", "") == []
        assert offered("topic", "pause", name, "--topics", "") == []
    assert offered("flow", "pause", "--flow", "") == []
    assert offered("sandbox", "fill", "--cluster", "") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(
    shell: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", f"twinlog flow pause {file.name} --flow A")
    monkeypatch.setenv("COMP_CWORD", "5" if shell == "zsh" else "A")
    assert run([]) == 0
    assert "A->B" in capsys.readouterr().out.replace(",", "\n").splitlines()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_asks_by_the_variable_that_is_answered(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    assert f"{ASKED_BY_SHELLS}={shell}_complete" in capsys.readouterr().out
    assert ASKED_BY_SHELLS == VARIABLE


def test_fish_does_not_cut_a_list_at_its_first_comma(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "fish"]) == 0
    script = capsys.readouterr().out
    assert script.count("string split --max 1") == script.count("string split") == 1


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes_with_the_file_of_the_wheel(file: Path) -> None:
    folder = SHARE / "fish" / "vendor_completions.d"
    line = f"twinlog flow pause {file.name} --flow A"
    script = f"set -p fish_complete_path '{folder}'; complete -C '{line}'"
    path = f"{Path(ENTRY[0]).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["fish", "--private", "-c", script],
        env=os.environ | {"PATH": path, "HOME": str(file.parent)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.split() == ["A->B"]


def test_an_unknown_shell_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "tcsh_complete")
    assert run([]) == 1


INSTALLED = SHARE / "bash-completion" / "completions" / "twinlog"


@pytest.mark.parametrize(
    "begin", ['eval "$(twinlog completion bash)"', f"source '{INSTALLED}'"], ids=["eval", "wheel"]
)
def test_bash_itself_completes(file: Path, begin: str) -> None:
    """The completion script runs in a real bash, and completes the line."""
    script = """
        [[ $(complete -p twinlog) == *"-F _twinlog_completion twinlog" ]] || exit 3
        COMP_WORDS=(twinlog topic pause mm2.properties --flow A) COMP_CWORD=5
        _twinlog_completion twinlog
        printf '%s\\n' "${COMPREPLY[@]}"
        COMP_WORDS=(twinlog topic pause mm2.properties --topics pay) COMPREPLY=()
        _twinlog_completion twinlog
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    # a file that 'pay.*' would match if bash expanded it as a pattern
    (file.parent / "'pay.html'").touch()
    path = f"{Path(ENTRY[0]).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{begin}\n{script}"],
        cwd=file.parent,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["'A->B'", "'pay.*'", "payments"]
