"""The rights that a DataFrame writer needs, and the message if one is missing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.client import read_all
from tests.support.rights import USERS, guarded
from tests.support.topics import allow, create_topic
from tests.support.write_loop import ROWS, options_for, run_batch
from twinlog.errors import TwinlogError
from twinlog.sandbox import LocalCluster

pytestmark = pytest.mark.broker

RIGHTS = ("WRITE topic", "READ topic", "WRITE id", "READ group")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with guarded("writer") as running:
        yield running


@pytest.mark.parametrize(
    ("missing", "code", "says"),
    [
        ("", "", ""),
        ("WRITE topic", "TOPIC_UNAUTHORIZED", "grant WRITE on topic "),
        ("READ topic", "TOPIC_UNAUTHORIZED", "grant READ on topic "),
        ("WRITE id", "TRANSACTIONAL_ID_UNAUTHORIZED", "grant WRITE on transactional ID "),
        ("READ group", "GROUP_UNAUTHORIZED", "grant READ on group __"),
    ],
    ids=["all", *RIGHTS],
)
def test_these_rights_and_no_others(
    cluster: LocalCluster, missing: str, code: str, says: str
) -> None:
    number = ("", *RIGHTS).index(missing)
    user, topic, name = USERS[number], f"topic-{number}", f"writer-{uuid.uuid4()}"
    create_topic(cluster, topic, 2)
    if missing != "WRITE topic":
        allow(cluster, user, ["WRITE"], topic=topic)
    else:
        allow(cluster, user, ["DESCRIBE"], topic=topic)
    if missing != "READ topic":
        allow(cluster, user, ["READ"], topic=topic)
    allow(cluster, user, ["DESCRIBE" if missing == "WRITE id" else "WRITE"], transactional_id=name)
    if missing == "READ group":
        allow(cluster, user, ["DESCRIBE"], group=f"__twinlog-{name}", prefixed=True)
    else:
        allow(cluster, user, ["READ"], group=f"__twinlog-{name}", prefixed=True)
    properties = cluster.client_properties("SASL_PLAINTEXT", user, mechanism="PLAIN")
    given = {f"kafka.{key}": value for key, value in properties.items()}
    bootstrap = given.pop("kafka.bootstrap.servers")
    options = options_for(bootstrap, topic, "a-write", **given, **{"kafka.transactional.id": name})
    if not missing:
        run_batch(options, 0)
        assert len(read_all(cluster, topic, isolation="read_committed")) == ROWS
        return
    with pytest.raises(TwinlogError) as error:
        run_batch(options, 0)
    assert error.value.code == code
    assert says in str(error.value)
