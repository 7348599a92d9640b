"""Options that select what runs: clusters, single settings, or several files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.support.properties import BASE
from twinlog.cli.main import run as run_command
from twinlog.cli.main import twinlog
from twinlog.cli.options.run_options import (
    SpreadClusters,
    configuration,
    configuration_options,
    flag_of,
)
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.keys.key_table import OWN_KEYS, OWN_PREFIX
from twinlog.errors import ConfigError

Run = Callable[..., MirrorConfig]

XDCR = [
    "clusters: west-1, west-2, east-1",
    *(f"{alias}.bootstrap.servers = {alias}:9092" for alias in ("west-1", "west-2", "east-1")),
    "west-1->west-2.enabled = true",
    "west-2->west-1.enabled = true",
    "west-1->east-1.enabled = true",
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs a command with arguments, in a folder that has mm2.properties."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mm2.properties").write_text("\n".join(BASE))
    (tmp_path / "xdcr.properties").write_text("\n".join(XDCR))

    @click.command(cls=SpreadClusters)
    @click.argument("files", nargs=-1, type=click.Path(path_type=Path))
    @click.option("--once", is_flag=True)
    @configuration_options
    def command(files: tuple[Path, ...], clusters: str | None, once: bool) -> MirrorConfig:
        return configuration(files, clusters)()

    def invoke(*arguments: str) -> MirrorConfig:
        found: MirrorConfig = command.main(list(arguments), standalone_mode=False)
        return found

    return invoke


def flows(config: MirrorConfig) -> list[str]:
    return [str(one.flow) for one in config.flows]


@pytest.mark.parametrize(
    "arguments",
    [
        ("xdcr.properties", "--clusters", "west-1", "west-2"),
        ("xdcr.properties", "--clusters", "west-1,west-2"),
        ("xdcr.properties", "--clusters", "west-1,", "west-2"),
        ("xdcr.properties", "--clusters=west-1,west-2"),
        ("xdcr.properties", "--clusters", "west-1", "west-2", "--once"),
        ("--clusters", "west-1", "west-2", "xdcr.properties"),
    ],
)
def test_nearby_clusters_by_blanks_or_commas(run: Run, arguments: tuple[str, ...]) -> None:
    assert flows(run(*arguments)) == ["west-1->west-2", "west-2->west-1"]


@pytest.mark.parametrize("arguments", [("--clusters",), ("--clusters", "--once")])
def test_no_cluster_at_the_options_address(run: Run, arguments: tuple[str, ...]) -> None:
    with pytest.raises((click.UsageError, ConfigError)):
        run("xdcr.properties", *arguments)


def test_a_setting_of_the_command_line_is_the_files_last_line(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "mm2.properties").open("a") as file:
        file.write("\ntopics = a\nA->B.replication.factor = 3\n")
    (flow,) = run("mm2.properties", "--set", "topics=b, c", "--set", "replication.factor = 1").flows
    assert flow.topics.entries == ("b", "c")
    assert flow.new_topics.replication_factor == 3, "a flow's own line still wins"


@pytest.mark.parametrize("value", ["topics", "=x", ""])
def test_a_setting_needs_key_and_value(run: Run, value: str) -> None:
    with pytest.raises(click.BadParameter, match="write KEY=VALUE"):
        run("mm2.properties", "--set", value)


def test_a_wrong_setting_names_the_option(run: Run) -> None:
    with pytest.raises(ConfigError, match=r'^--set: replication\.factor: "x" is not a whole'):
        run("mm2.properties", "--set", "replication.factor=x")
    with pytest.raises(ConfigError, match=r"^--lease-seconds: twinlog\.lease\.seconds: 0 is too"):
        run("mm2.properties", "--lease-seconds", "0")


def test_an_override_of_the_command_line_wins_over_every_line(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "mm2.properties").open("a") as file:
        file.write("\nA->B.twinlog.lease.seconds = 7\nB.twinlog.state.topic.replication.factor=2\n")
    (flow,) = run(
        "mm2.properties", "--lease-seconds", "9", "--state-topic-replication-factor", "1"
    ).flows
    assert (flow.lanes.lease_seconds, flow.state_topic_replication_factor) == (9, 1)


@pytest.mark.parametrize("flag", ["--start", "--source-start"])
def test_the_start_by_its_flag_of_today_and_the_old_one(run: Run, flag: str) -> None:
    (flow,) = run("mm2.properties", flag, "latest").flows
    assert str(flow.start) == "latest"
    with pytest.raises(ConfigError, match=r'^--start: twinlog\.start: "now" is not a start'):
        run("mm2.properties", flag, "now")


@pytest.mark.parametrize("command", ["mirror", "check", "mirror-maker"])
def test_each_own_key_has_a_flag(command: str) -> None:
    found = twinlog.get_command(click.Context(twinlog), command)
    assert found is not None
    flags = {flag for parameter in found.params for flag in parameter.opts}
    assert {flag_of(key) for key in OWN_KEYS} <= flags
    assert all(re.fullmatch(r"--[a-z-]+", flag_of(key)) for key in OWN_KEYS)
    assert all(key.name.startswith(OWN_PREFIX) for key in OWN_KEYS)


def test_several_files_run_side_by_side_and_do_not_mix(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "mm2.properties").open("a") as file:
        file.write("\ntopics = only-here\nnosuchkey = 1\n")
    config = run("mm2.properties", "xdcr.properties")
    assert flows(config) == ["A->B", "west-1->west-2", "west-1->east-1", "west-2->west-1"]
    assert [str(one.topics) for one in config.flows] == ["only-here", ".*", ".*", ".*"]
    assert [one.alias for one in config.clusters] == ["A", "B", "west-1", "west-2", "east-1"]
    assert (config.file, config.more_files) == ("mm2.properties", ("xdcr.properties",))
    assert [str(one).partition(":")[0] for one in config.warnings] == ["mm2.properties"]


def test_a_flow_of_two_files_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.properties").write_text("\n".join([*BASE, "topics = bar"]))
    said = r"other\.properties: A->B\.enabled: the flow is also enabled in"
    with pytest.raises(ConfigError, match=said):
        run("mm2.properties", "other.properties")


def test_an_alias_of_two_clusters_is_refused(run: Run, tmp_path: Path) -> None:
    lines = [line.replace("a:9092", "elsewhere:9092").replace("A->B", "B->A") for line in BASE]
    (tmp_path / "other.properties").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"A\.bootstrap\.servers: shares no server with A of"):
        run("mm2.properties", "other.properties")


@pytest.mark.parametrize("command", ["mirror", "verify"])
def test_an_archive_that_no_executor_would_unpack_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run_command([command, "mm2.properties", "--archive", str(tmp_path / "executors.zip")]) == 2
    )
    assert "--archive is for executors of a Spark cluster: pass the cluster's --master" in (
        capsys.readouterr().err
    )
