"""Checks whether topics that a broker does not show are deleted, or whether its metadata is stale.

A broker answers from the metadata that it has. A broker that was frozen, starved or cut off from
the controller has old metadata, and still lists itself as alive. So a topic in a response exists or
existed, and a topic missing from it may exist nevertheless. If a response were trusted, `--once`
would end successfully without copying anything, and a running mirror would give back a healthy
topic.

The topics that should exist are those that the configuration names without a pattern, and those
that the flow has begun to copy. If a response lacks one, other brokers are queried for it by name:

- No broker shows it: it is deleted, or hidden from Twinlog's user. After a deletion, a stale
  response shows more topics, not fewer.
- A broker shows it: the brokers differ, and this discovery has no result. Nothing is created, begun
  or given back. The next discovery queries a random broker.
- No other broker responds: there is no result either, if there are other brokers.

The check only reads, so a crash or concurrent checks change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from twinlog.cluster.client import ClusterClient
from twinlog.cluster.net.metadata import ClusterMetadata, TopicMetadata
from twinlog.cluster.net.retry import CHANCE
from twinlog.errors import BrokerRefused, ClusterError, Fate
from twinlog.quantities import first_few, plural
from twinlog.wire.error_codes import NONE

ASKED: Final = 5
"""Maximum number of brokers to query. If that many have equally stale metadata, the cluster has no
controller.
"""

NEEDED: Final = 2
"""Minimum number of responses, if there are that many brokers. One of them may be from the broker
that discovery queried.
"""


def require_gone(client: ClusterClient, seen: ClusterMetadata, names: Collection[str]) -> None:
    """Raise BrokerRefused BROKERS_DIFFER (retriable) unless other brokers lack these topics, too.

    The client's connections are then closed, so that the next discovery queries another broker.
    """
    lacking = sorted(name for name in names if name not in seen.topics)
    if not lacking or not seen.brokers:
        return
    answers = [*_answers(client, seen, lacking)]
    shown = {
        name for answer in answers for name, topic in answer.topics.items() if topic.error == NONE
    }
    if shown:
        what = f"one shows {first_few(sorted(shown))}, another does not"
    elif len(answers) < min(NEEDED, len(seen.brokers)):
        what = f"one broker does not list {first_few(lacking)}, and the others do not respond"
    else:
        return
    client.close()
    raise BrokerRefused(
        f"cluster {client.alias}: brokers differ about {plural(len(lacking), 'topic')} ({what}): "
        "one of them has stale metadata; if this persists, check the brokers' connections to the "
        "controller",
        code="BROKERS_DIFFER",
        fate=Fate.RETRIABLE,
    )


def shown_by_any(client: ClusterClient) -> Iterator[TopicMetadata]:
    """Yield all topics that some of the brokers show. A topic may be repeated."""
    for answer in _answers(client, client.metadata([]), None):
        yield from answer.topics.values()


def _answers(
    client: ClusterClient, seen: ClusterMetadata, names: Collection[str] | None
) -> Iterator[ClusterMetadata]:
    nodes = sorted(seen.brokers)
    for node in CHANCE.sample(nodes, min(ASKED, len(nodes))):
        try:
            yield client.metadata_from(node, names)
        except ClusterError:
            continue  # the caller judges whether enough brokers have responded
