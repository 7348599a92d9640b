"""Topics that a broker does not show although they should be there: are they gone, or is its
metadata old?

A broker answers from the metadata that it has. One that was frozen, starved or cut off from the
controller has what it had before, and names itself alive. So a topic in an answer is or was there;
a topic that is not in it may be there all the same. Taken at its word, `--once` ends as done with
nothing copied, and a running mirror gives a healthy topic back.

Topics that should be there are those that the configuration names without a pattern, and those that
the flow has begun to copy. Where an answer lacks one, other brokers are asked for it by name:

- Nobody shows it: it is gone, or hidden from us. Where a topic was deleted, an old answer shows
  more, not less.
- Somebody shows it: the brokers differ, and this look tells nothing. Nothing is made, begun or
  given back; the next look asks a broker by chance.
- Nobody else answers: nothing is known either, where there are others.

It only reads, so dying here, or two that do it at once, change nothing.
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
"""Brokers at most: many that are behind alike are a cluster without a controller."""

NEEDED: Final = 2
"""Answers at least, where there are so many brokers: one of them may be that of the look."""


def require_gone(client: ClusterClient, seen: ClusterMetadata, names: Collection[str]) -> None:
    """Raises BrokerRefused BROKERS_DIFFER (retriable) unless other brokers lack these topics, too.

    Its connections are closed then: the next look asks another broker.
    """
    lacking = sorted(name for name in names if name not in seen.topics)
    if not lacking or not seen.brokers:
        return
    answers = [*_answers(client, seen, lacking)]
    shown = {name for one in answers for name, topic in one.topics.items() if topic.error == NONE}
    if shown:
        what = f"one shows {first_few(sorted(shown))}, another does not"
    elif len(answers) < min(NEEDED, len(seen.brokers)):
        are = "is" if len(lacking) == 1 else "are"
        what = f"{first_few(lacking)} {are} not shown by one, and others do not answer"
    else:
        return
    client.close()
    raise BrokerRefused(
        f"cluster {client.alias}: brokers differ about {plural(len(lacking), 'topic')} ({what}): "
        "one of them is behind; if this stays, look at the brokers' connections to the controller",
        code="BROKERS_DIFFER",
        fate=Fate.RETRIABLE,
    )


def shown_by_any(client: ClusterClient) -> Iterator[TopicMetadata]:
    """All topics that some of the brokers show, one after the other: a topic may come often."""
    for one in _answers(client, client.metadata([]), None):
        yield from one.topics.values()


def _answers(
    client: ClusterClient, seen: ClusterMetadata, names: Collection[str] | None
) -> Iterator[ClusterMetadata]:
    nodes = sorted(seen.brokers)
    for node in CHANCE.sample(nodes, min(ASKED, len(nodes))):
        try:
            yield client.metadata_from(node, names)
        except ClusterError:
            continue  # it says neither; the caller judges whether enough have answered
