"""The start scripts of both MirrorMakers, and `convert`, as users call them from a shell."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.snapshots import flow
from twinlog.cli.commands.mirror import mirror_maker
from twinlog.cli.main import run
from twinlog.cli.options.mirror_maker_1_options import pair
from twinlog.control.watch.status_file import StatusFile

ROOT = Path(__file__).resolve().parents[3]


PRINTS_ITS_ARGUMENTS = "printf '%s\\n' \"$@\"\nexit 7\n"


def a_script(
    name: str, folder: Path, *arguments: str, does: str = PRINTS_ITS_ARGUMENTS, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the script of that name with a stub of the `twinlog` command. `does`: shell code of the
    stub. `more`: environment variables.
    """
    folder.mkdir(exist_ok=True)
    echo = folder / "twinlog"
    echo.write_text(f"#!/bin/sh\n{does}\n")
    echo.chmod(0o755)
    # users may call the script through a link
    link = folder / name
    link.symlink_to(ROOT / "bin" / name)
    return subprocess.run(
        [link, *arguments],
        env={"TWINLOG": str(echo), "PATH": "/usr/bin:/bin", **more},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "command"),
    [("connect-mirror-maker.sh", "mirror"), ("kafka-mirror-maker.sh", "mirror-maker")],
)
def test_arguments_and_exit_code_are_handed_on_as_they_are(
    name: str, command: str, tmp_path: Path
) -> None:
    given = ["--whitelist", "a b|'c'", "", "--clusters", "west-1", "west-2"]
    ended = a_script(name, tmp_path, *given)
    assert ended.stdout.split("\n")[:-1] == [command, *given]
    assert ended.returncode == 7


@pytest.mark.parametrize(
    ("name", "command"),
    [("connect-mirror-maker.sh", "mirror"), ("kafka-mirror-maker.sh", "mirror-maker")],
)
def test_daemon_runs_in_a_session_of_its_own(name: str, command: str, tmp_path: Path) -> None:
    waits = 'printf "%s\\n" "$@"\nexec sleep 60'
    logs = tmp_path / "logs of mine"
    ended = a_script(
        name, tmp_path, "-daemon", "mm2.properties", "--once", does=waits, LOG_DIR=str(logs)
    )
    assert ended.returncode == 0, ended.stderr
    started = re.fullmatch(
        r"process (\d+); what it prints goes to (.*); .* kill \1\n", ended.stdout
    )
    assert started, ended.stdout
    process = psutil.Process(int(started[1]))
    try:
        eventually(lambda: process.cmdline() == ["sleep", "60"])
        assert os.getsid(process.pid) == process.pid
    finally:
        process.kill()
    assert started[2] == str(logs / "mirrorMaker.out")
    assert Path(started[2]).read_text().splitlines() == [command, "mm2.properties", "--once"]


def test_daemon_that_ends_at_once_says_why(tmp_path: Path) -> None:
    ended = a_script(
        "connect-mirror-maker.sh",
        tmp_path,
        "-daemon",
        "mm2.properties",
        does="echo mm2.properties: no such file; exit 2",
        LOG_DIR=str(tmp_path),
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "mm2.properties: no such file\n"


def pair_files(folder: Path) -> list[str]:
    (folder / "c.properties").write_text("bootstrap.servers=a:9092\ngroup.id=g\n")
    (folder / "p.properties").write_text("bootstrap.servers=b:9092\n")
    return [
        "--consumer.config",
        str(folder / "c.properties"),
        "--producer.config",
        str(folder / "p.properties"),
    ]


def test_convert_prints_and_writes_but_never_over_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["convert", *pair_files(tmp_path), "--whitelist", "orders"]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert "g->target.topics = orders\n" in printed
    out = tmp_path / "mm2.properties"
    assert run([*arguments, "--output", str(out)]) == 0
    assert out.read_text() == printed
    assert run([*arguments, "--output", str(out)]) == 2
    assert run(["convert", str(out)]) == 0
    assert capsys.readouterr().out == printed


def test_only_its_user_can_read_the_output_of_convert(tmp_path: Path) -> None:
    out, victim = tmp_path / "mm2.properties", tmp_path / "victim"
    arguments = ["convert", *pair_files(tmp_path), "--whitelist", "orders", "--output"]
    mask = os.umask(0o022)
    try:
        assert run([*arguments, str(out)]) == 0
    finally:
        os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link"
    link.symlink_to(victim)
    assert run([*arguments, str(link)]) == 2
    assert not victim.exists()


def test_a_lone_star_becomes_a_pattern_that_mirror_maker_2_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*pair_files(tmp_path), "--whitelist", "*", "--exclude", "a*,*"]
    assert run(["convert", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "g->target.topics = .*\n" in printed
    assert "topics.exclude = __.*, mm2.*\\\\.internal, a*, .*\n" in printed


def test_check_and_status_take_the_pair_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*pair_files(tmp_path), "--whitelist", "orders"]
    assert run(["check", *arguments, "--explain", "--lease-seconds", "77"]) == 0
    printed = capsys.readouterr().out
    assert "g->target: set in FILE" in printed
    for key, value, origin in (
        ("g->target.topics", "orders", "--whitelist"),
        ("twinlog.lease.seconds", "77", "--lease-seconds"),
        ("g->target.twinlog.source.group.id", "g", "c.properties:2"),
        ("g->target.twinlog.new.topic.partitions", "default", "MirrorMaker 1's way"),
    ):
        (line,) = [one for one in printed.splitlines() if one.split()[:1] == [key]]
        assert line.split(maxsplit=3)[1:3] == ["=", value]
        assert origin in line
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    status = StatusFile(tmp_path / "c.properties", tmp_path / "p.properties")
    status.write([flow(flow="g->target")])
    assert run(["status", *arguments]) == 0
    assert f"{tmp_path}/c.properties: process {os.getpid()}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "convert", "support-bundle"])
def test_neither_a_file_nor_a_pair_or_both_is_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command]) == 2
    assert "Missing argument 'FILE', or the flags of MirrorMaker 1" in capsys.readouterr().err
    assert run([command, "mm2.properties", *pair_files(tmp_path)]) == 2
    assert "not both" in capsys.readouterr().err


def test_own_keys_have_flags_beside_a_pair_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["mirror-maker", *pair_files(tmp_path), "--include", "a", "--lease-seconds", "0"]
    assert run(arguments) == 2
    assert "--lease-seconds: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], "Missing option '--include' (or '--whitelist')."),
        (["--include", "a", "--whitelist", "b"], "--whitelist is the old name of --include"),
        (["--include", "a", "--message.handler", "a.B"], "--message.handler: a Java class"),
        (["--include", "a", "--abort.on.send.failure", "perhaps"], "not a valid boolean"),
        (["--include", "a("], "--include: g->target.topics: "),
    ],
)
@pytest.mark.parametrize("command", ["convert", "mirror-maker"])
def test_wrong_flags_are_2_and_say_why(
    command: str, more: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, *pair_files(tmp_path), *more]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--include", "a"], "Missing option '--consumer.config'."),
        (["--consumer.config", "x", "--include", "a"], "Missing option '--producer.config'."),
    ],
)
def test_a_missing_file_is_2(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mirror-maker", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_flags_that_do_nothing_are_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--include", "a", "--abort.on.send.failure", "false", "--new.consumer"]
    assert run(["convert", *pair_files(tmp_path), *more]) == 0
    err = capsys.readouterr().err
    assert err.count("[NO_MEANING]") == 1
    assert "--new.consumer" in err
    assert "--abort.on.send.failure=false" in err


def test_a_wrong_secrets_folder_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "mirror.yaml", "--secrets", str(tmp_path / "none")]) == 2
    assert "--secrets" in capsys.readouterr().err


def test_words_that_are_no_option_are_accepted_and_named() -> None:
    files = ["--consumer.config", "c", "--producer.config", "p"]
    given = ["--whitelist", "a", "--abort.on.send.failure", "true", "new.consumer", *files, "x"]
    with mirror_maker.make_context("mirror-maker", given) as context:
        consumer, producer, options = pair(context.params)
    assert (consumer, producer, options.include) == (Path("c"), Path("p"), "a")
    assert options.idle == ("new.consumer", "x")
