"""`twinlog topic`: pause, resume, release and promote topics of flows, and skip records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from twinlog.cli.commands.steer.skip import skip
from twinlog.cli.options.command import CommandGroup
from twinlog.cli.options.steering_options import names_of, steer, steering_options, topics_option
from twinlog.cli.terminal.output import Answer
from twinlog.mirror.state.intents import RESUMED, IntentKind


@click.group("topic", cls=CommandGroup)
def topic() -> None:
    """Pause, resume, release or promote single topics of flows, or skip one record of them.

    \b
    twinlog topic pause mm2.properties --topics 'logs-.*'
    twinlog topic resume mm2.properties --topics 'logs-.*'
    twinlog topic release mm2.properties --topics orders
    twinlog topic skip mm2.properties orders --partition 0 --offset 4711 --dry-run
    """


topic.add_command(skip)


@topic.command("pause")
@topics_option
@steering_options
def pause(file: Path, topics: str, **given: Any) -> Answer:
    """Stop the copy of topics until `topic resume`; other topics continue.

    --topics matches topics that exist on the source now: a topic that is created later is not
    paused.

    \b
    twinlog topic pause mm2.properties --topics orders --reason 'a consumer is repaired'
    twinlog topic pause mm2.properties --topics 'logs-.*,audit' --dry-run
    """
    return _want(IntentKind.PAUSE, file, topics, **given)


@topic.command("resume")
@topics_option
@steering_options
def resume(file: Path, topics: str, **given: Any) -> Answer:
    """Take the pause or release of topics back; each resumes at exactly the next record.

    If other clients have written to a released topic since, its partitions stop with a code.

    \b
    twinlog topic resume mm2.properties --topics orders
    twinlog topic resume mm2.properties --topics '.*'
    """
    return _take_back(RESUMED, "is paused or released by name", file, topics, **given)


@topic.command("release")
@topics_option
@steering_options
def release(file: Path, topics: str, **given: Any) -> Answer:
    """Stop mirroring these topics. Other clients may then write to the remote topics.

    Remote topics stay as they are. The release overrides FILE and holds after restarts. Their
    configs, ACLs and groups are not synced any more either.

    \b
    twinlog topic release mm2.properties --topics orders --reason 'moved to B'
    twinlog topic release mm2.properties --topics 'team-a-.*' --dry-run
    """
    return _want(IntentKind.RELEASE, file, topics, **given)


@topic.command("promote")
@topics_option
@steering_options
def promote(file: Path, topics: str, **given: Any) -> Answer:
    """Make remote topics the originals: copying ends, and other clients may write to them.

    Like `topic release`, except that it is undone by `topic demote`, not by `topic resume`.

    \b
    twinlog topic promote mm2.properties --topics orders --reason 'its producers moved to B'
    twinlog topic promote mm2.properties --topics 'team-a-.*' --dry-run
    """
    return _want(IntentKind.PROMOTE, file, topics, **given)


@topic.command("demote")
@topics_option
@steering_options
def demote(file: Path, topics: str, **given: Any) -> Answer:
    """Take the promotion of topics back; each resumes copying at exactly the next record.

    If other clients have written to a remote topic since, its partitions stop with a code. Refused
    for topics whose tail a failback has begun to replay (REPLAYED).

    \b
    twinlog topic demote mm2.properties --topics orders
    twinlog topic demote mm2.properties --topics 'team-a-.*' --dry-run
    """
    return _take_back([IntentKind.PROMOTE], "was promoted by name", file, topics, **given)


def _want(kind: IntentKind, file: Path, topics: str, **given: Any) -> Answer:
    names = names_of(topics)
    nothing = f"--topics: no flow mirrors a topic that matches {topics}"
    return steer(file, lambda one: one.want_topics(kind, names), nothing=nothing, **given)


def _take_back(
    kinds: Sequence[IntentKind], what: str, file: Path, topics: str, **given: Any
) -> Answer:
    names = names_of(topics)
    nothing = f"--topics: no topic that matches {topics} {what}"
    return steer(file, lambda one: one.take_back_topics(kinds, names), nothing=nothing, **given)
