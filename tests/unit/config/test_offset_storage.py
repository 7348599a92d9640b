"""The topic in which a MirrorMaker 2 with the same configuration stores its positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import BASE, flow_of, loader
from twinlog.config.files.overrides import Override
from twinlog.config.flow.offset_storage import OffsetStorage, offset_storage
from twinlog.config.load import load, load_all

RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata:
  name: mirror
spec:
  connectCluster: B
  clusters:
    - {alias: A, bootstrapServers: "a:9092"}
    - alias: B
      bootstrapServers: "b:9092"
      config:
        offset.storage.topic: positions
  mirrors:
    - sourceCluster: A
      targetCluster: B
      sourceConnector: {}
"""


def storage(folder: Path, *lines: str, connector: str | None = None) -> OffsetStorage:
    config = loader(folder)(*lines)
    return offset_storage(config, flow_of(config), connector)


def test_dedicated_mode(tmp_path: Path) -> None:
    assert storage(tmp_path) == OffsetStorage(
        topic="mm2-offsets.A.internal",
        connector="MirrorSourceConnector",
        cluster="A",
        group="A-mm2",
    )


def test_the_workers_keys_and_the_name_in_keys(tmp_path: Path) -> None:
    found = storage(
        tmp_path,
        "B.offset.storage.topic = positions",
        "B.group.id = workers",
        "A->B.source.cluster.alias = east",
        "A->B.name = mine",
    )
    assert found == OffsetStorage(
        topic="positions", connector="mine", cluster="east", group="workers"
    )


def test_the_key_without_an_alias_wins(tmp_path: Path) -> None:
    # MirrorMakerConfig.workerConfig overrides the cluster's key by this one
    lines = ("B.offset.storage.topic = theirs", "offset.storage.topic = all")
    assert storage(tmp_path, *lines).topic == "all"
    assert storage(tmp_path, "A.offset.storage.topic = of-the-source").topic == (
        "mm2-offsets.A.internal"
    )


@pytest.mark.parametrize("key", ["A.bootstrap.servers", "A->B.enabled"])
def test_settings_of_the_command_line(tmp_path: Path, key: str) -> None:
    """The settings of the file and of the command line are both used. Otherwise the wrong group
    would be checked, and a MirrorMaker 2 that still runs would not be found.
    """
    one, other = tmp_path / "one.properties", tmp_path / "other.properties"
    one.write_text("\n".join([*BASE, "B.group.id = workers", ""]))
    other.write_text("\n".join([*BASE, "B.group.id = others", ""]).replace("A", "C"))
    given = {"B.offset.storage.topic": "positions", key: "true" if key[1] == "-" else "a:9093"}
    overrides = [Override(flag="--set", key=name, value=value) for name, value in given.items()]
    config = load_all([one, other], environment={}, overrides=overrides)
    found = [offset_storage(config, flow_of(config, source)) for source in "AC"]
    assert [(each.topic, each.group) for each in found] == [
        ("positions", "workers"),
        ("positions", "others"),
    ]


def test_a_connector_of_kafka_connect_is_named(tmp_path: Path) -> None:
    assert storage(tmp_path, "A->B.name = other", connector="mine").connector == "mine"


@pytest.mark.parametrize(
    ("line", "topic"),
    [("        offset.storage.topic: positions\n", "positions"), ("", None)],
)
@pytest.mark.parametrize("name", ["mirror.yaml", "mirror"])  # without a suffix, as of a pipe
def test_strimzi(tmp_path: Path, name: str, line: str, topic: str | None) -> None:
    file = tmp_path / name
    text = RESOURCE.replace("        offset.storage.topic: positions\n", line)
    file.write_text(text if line else text.replace("      config:\n", ""))
    config = load(file, environment={})
    found = offset_storage(config, flow_of(config))
    assert found == OffsetStorage(
        topic=topic or "mirrormaker2-cluster-offsets",
        connector="A->B.MirrorSourceConnector",
        cluster="A",
        group="mirrormaker2-cluster",
    )


def test_strimzi_v1_has_fields_for_them(tmp_path: Path) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_text(
        "apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\nmetadata: {name: mirror}\n"
        "spec:\n  target: {alias: B, bootstrapServers: 'b:9092', groupId: workers,"
        " offsetStorageTopic: positions}\n"
        "  mirrors:\n    - {source: {alias: A, bootstrapServers: 'a:9092'}, sourceConnector: {}}\n"
    )
    config = load(file, environment={})
    found = offset_storage(config, flow_of(config))
    assert (found.topic, found.group) == ("positions", "workers")
    assert found.connector == "A->B.MirrorSourceConnector"
