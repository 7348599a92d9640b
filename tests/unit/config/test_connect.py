"""`transforms` and `predicates` of Kafka Connect, in every form of a file. The supported ones run,
and the others are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.connect_chains import CHAINS, KAFKAS, ROUTED_TOPICS, ROUTES, chain_lines, router
from tests.support.properties import BASE, IDENTITY, Loader, flow_of, refusal, warnings_of
from twinlog.channel.codec import MessageCodec
from twinlog.cli.main import run
from twinlog.config.advice.explanation import explain, without_meaning
from twinlog.config.advice.transforms import refuse_transforms
from twinlog.config.effective import changes_between
from twinlog.config.flow.connect import Action
from twinlog.config.flow.schema import MirrorConfig
from twinlog.config.flow.transforms import TransformConfig
from twinlog.config.load import load
from twinlog.config.values.warnings import WarningCode
from twinlog.control.running.flow_transforms import transforms_work
from twinlog.errors import ConfigError
from twinlog.mirror.names.filters import policy_of
from twinlog.spark.application import TransformsWork
from twinlog.transforms.application import config_of

Keys = Mapping[str, str]
CONNECT = "org.apache.kafka.connect."
PYTHON = "write it in Python with twinlog.transforms (docs/transforms.md#"
CONNECTOR = {
    "name": "copy",
    "connector.class": f"{CONNECT}mirror.MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "b:9092",
}


def in_properties(folder: Path, keys: Keys) -> Path:
    file = folder / "mm2.properties"
    lines = (f"A->B.{key} = {value}".replace("\\", "\\\\") for key, value in keys.items())
    file.write_text("\n".join([*BASE, *lines]))
    return file


def in_strimzi(folder: Path, keys: Keys, section: str = "sourceConnector") -> Path:
    ends = {"sourceCluster": "A", "targetCluster": "B", "sourceConnector": {}}
    clusters = [{"alias": one, "bootstrapServers": f"{one}:9092"} for one in "AB"]
    spec = {
        "connectCluster": "B",
        "clusters": clusters,
        "mirrors": [ends | {section: {"config": keys}}],
    }
    kind = {"apiVersion": "kafka.strimzi.io/v1beta2", "kind": "KafkaMirrorMaker2"}
    file = folder / "mirror.yaml"
    file.write_text(json.dumps({**kind, "metadata": {"name": "m"}, "spec": spec}, indent=1))
    return file


def in_json(folder: Path, keys: Keys) -> Path:
    file = folder / "connector.json"
    file.write_text(json.dumps({**CONNECTOR, **keys}, indent=1))
    return file


def in_resource(folder: Path, keys: Keys) -> Path:
    spec = {"class": CONNECTOR["connector.class"], "config": {**CONNECTOR, **keys}}
    kind = {"apiVersion": "kafka.strimzi.io/v1beta2", "kind": "KafkaConnector"}
    file = folder / "connector.yaml"
    file.write_text(json.dumps({**kind, "metadata": {"name": "copy"}, "spec": spec}, indent=1))
    return file


FORMS = {
    "properties": in_properties,
    "Strimzi": in_strimzi,
    "connector": in_json,
    "KafkaConnector": in_resource,
}
REFUSED: dict[str, tuple[Keys, str, str]] = {
    **{
        f"{name}{part}": (
            {"transforms": "x", "transforms.x.type": f"{KAFKAS}{name}{part}"},
            "transforms.x.type",
            f'"{KAFKAS}{name}{part}" needs a schema, and MirrorMaker 2 copies bytes without one; ',
        )
        for name, parts in {
            **dict.fromkeys(("Cast", "ExtractField", "Flatten", "HeaderFrom"), ("$Key", "$Value")),
            **dict.fromkeys(("HoistField", "InsertField", "MaskField"), ("$Key", "$Value")),
            **dict.fromkeys(("ReplaceField", "SetSchemaMetadata"), ("$Key", "$Value")),
            **{"TimestampConverter": ("$Key", "$Value"), "ValueToKey": ("",)},
        }.items()
        for part in parts
    },
    "a custom transform": (
        {"transforms": "x", "transforms.x.type": "com.example.Mask"},
        "transforms.x.type",
        'Twinlog cannot run the Java class "com.example.Mask", so the copy would differ; ',
    ),
    "a custom predicate": (
        {
            **{"transforms": "x", "transforms.x.type": f"{KAFKAS}Filter"},
            **{"transforms.x.predicate": "p", "predicates": "p"},
            "predicates.p.type": "com.example.IsTest",
        },
        "predicates.p.type",
        'Twinlog cannot run the Java class "com.example.IsTest", so the copy would differ; ',
    ),
    **{
        key: (
            {key: f"{CONNECT}{name}"},
            key,
            f'Twinlog cannot run the Java class "{CONNECT}{name}", which changes the bytes of ',
        )
        for key, name in {
            "key.converter": "json.JsonConverter",
            "value.converter": "storage.StringConverter",
            "header.converter": "storage.SimpleHeaderConverter",
        }.items()
    },
    **{
        f"an interceptor of the {name}": (
            {f"{name}.interceptor.classes": "com.example.Audit"},
            f"{name}.interceptor.classes",
            'Twinlog cannot run the Java class "com.example.Audit", so the copy would differ; ',
        )
        for name in ("consumer", "producer.override")
    },
}
STRIP = {"type": f"{KAFKAS}RegexRouter", "regex": r"A\.(.*)", "replacement": "$1"}
OF_RECORDS: dict[str, tuple[Keys, Keys, str]] = {
    "TimestampRouter": (
        {"type": f"{KAFKAS}TimestampRouter", "topic.format": "${topic}-${timestamp}"},
        {},
        "by their timestamps",
    ),
    "tombstones": (
        {**STRIP, "predicate": "p"},
        {"type": f"{KAFKAS}predicates.RecordIsTombstone"},
        "only if its predicate is true for them",
    ),
    "all but those with a header": (
        {**STRIP, "predicate": "p", "negate": "true"},
        {"type": f"{KAFKAS}predicates.HasHeaderKey", "name": "h"},
        "only if its predicate is true for them",
    ),
}
"""Routers that may send the records of one topic to several topics: the options of the router and
of its predicate.
"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_class_that_does_not_run_is_refused_by_its_name(
    tmp_path: Path, form: str, name: str
) -> None:
    keys, key, what = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        load(FORMS[form](tmp_path, keys), environment={})
    assert (caught.value.code, len(caught.value.each)) == ("CONFIG_INVALID", 1)
    assert (caught.value.key or "").endswith(key) and caught.value.line is not None
    assert caught.value.what.startswith(what)
    assert PYTHON in caught.value.what


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", OF_RECORDS)
def test_a_router_that_would_separate_the_records_of_a_topic_is_refused(
    tmp_path: Path, form: str, name: str
) -> None:
    options, predicate, how = OF_RECORDS[name]
    keys = {"transforms": "x", **{f"transforms.x.{key}": one for key, one in options.items()}}
    if predicate:
        keys |= {"predicates": "p", **{f"predicates.p.{key}": v for key, v in predicate.items()}}
    with pytest.raises(ConfigError) as caught:
        load(FORMS[form](tmp_path, keys), environment={})
    assert caught.value.code == "TRANSFORMS_NOT_RUN"
    assert caught.value.what == (
        f'"{options["type"]}" sets the topic of records {how}, but a mirror copies a topic to one '
        "topic; give each route a flow of its own with a filter (docs/transforms.md#routing), or "
        "name remote topics with twinlog.rename or RegexRouter for all of their records, and "
        "remove the line"
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_router_names_remote_topics_in_each_form(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"transforms": "x", **{f"transforms.x.{key}": one for key, one in STRIP.items()}}
    file = FORMS[form](tmp_path, keys)
    config = load(file, environment={})
    flow = flow_of(config)
    names = {topic: policy_of(flow).format_remote_topic("A", topic) for topic in ROUTED_NAMES}
    assert names == ROUTED_NAMES
    assert not flow.transforms.entries and refuse_transforms(config) is config
    assert [one for one in config.warnings if one.code is not WarningCode.READ_AS] == []
    assert any("the names from a RegexRouter apply" in one for one in explain(flow).differences)
    assert run(["convert", str(file)]) == 0
    converted = tmp_path / "converted.properties"
    converted.write_text(capsys.readouterr().out)
    assert flow_of(load(converted, environment={})).policy == flow.policy


ROUTED_NAMES = {
    "orders": "orders",
    "C.orders": "C.orders",
    # clients find clusters by these names, so they keep their alias
    "heartbeats": "A.heartbeats",
    "C.heartbeats": "A.C.heartbeats",
    # an ACL on `*` would grant a right on every topic of the target
    "*": "A.*",
}


@pytest.mark.parametrize(
    ("lines", "topic", "remote"),
    [
        (("A->B.twinlog.rename = orders:eu-orders",), "orders", "eu-orders"),
        (("replication.policy.separator = _",), "orders", "A_orders"),
        (("source.cluster.alias = west",), "orders", "west.orders"),
        ((IDENTITY,), "A.orders", "orders"),
        ((IDENTITY,), "my-heartbeats", "my-heartbeats"),
    ],
    ids=str,
)
def test_a_router_gets_the_name_that_the_policy_makes(
    read: Loader, lines: tuple[str, ...], topic: str, remote: str
) -> None:
    flow = flow_of(read(*(f"A->B.{one}" for one in chain_lines(router(r"A\.(.*)", "$1"))), *lines))
    assert policy_of(flow).format_remote_topic(flow.source_alias, topic) == remote


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "replication.policy.class = twinlog.mirror.names.naming:DefaultReplicationPolicy",
            "a custom replication policy names the topics itself",
        ),
        ("twinlog.sync.topic.acls.prefixed = true", "with A->B.transforms ("),
        ("twinlog.sync.topic.acls.removal = true", "with A->B.transforms ("),
    ],
)
def test_what_cannot_be_combined_with_a_router(read: Loader, line: str, said: str) -> None:
    chain = [f"A->B.{one}" for one in chain_lines(router(r"A\.(.*)", "$1"))]
    assert said in refusal(lambda: read(*chain, line))
    read(line)


@pytest.mark.parametrize("form", FORMS)
def test_a_chain_is_the_same_in_each_form(tmp_path: Path, form: str) -> None:
    keys = {
        "transforms": "quiet, marked",
        "transforms.quiet.type": f"{KAFKAS}DropHeaders",
        "transforms.quiet.headers": "trace",
        "transforms.quiet.predicate": "isOrders",
        "transforms.marked.type": f"{KAFKAS}InsertHeader",
        "transforms.marked.header": "by",
        "transforms.marked.value.literal": "x",
        "predicates": "isOrders",
        "predicates.isOrders.type": f"{KAFKAS}predicates.TopicNameMatches",
        "predicates.isOrders.pattern": r"A\.orders",
    }
    config = load(FORMS[form](tmp_path, keys), environment={})
    found = flow_of(config).transforms
    assert [(one.name, str(one.topics)) for one in found.entries] == [
        ("transforms.quiet", r"A\.orders"),
        ("transforms.marked", ".*"),
    ]
    steps = found.connect_steps("orders")
    assert [(one.action, one.headers, one.value) for one in steps] == [
        (Action.DROP, ("trace",), None),
        (Action.INSERT, ("by",), b"x"),
    ]
    assert [one.name for one in found.connect_steps("A.orders")] == ["marked"]
    assert refuse_transforms(config) is config
    assert [one for one in config.warnings if one.code is not WarningCode.READ_AS] == []
    lines = [one.line for one in explain(flow_of(config)).keys if "transforms" in one.key]
    assert len([one for one in lines if one is not None]) >= 7
    assert any("heartbeats and checkpoints" in one for one in explain(flow_of(config)).differences)


def test_convert_keeps_a_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {
        "transforms": "quiet",
        "transforms.quiet.type": f"{KAFKAS}DropHeaders",
        "transforms.quiet.headers": "trace, user",
    }
    before = load(in_strimzi(tmp_path, keys), environment={})
    assert run(["convert", str(tmp_path / "mirror.yaml")]) == 0
    file = tmp_path / "converted.properties"
    file.write_text(capsys.readouterr().out)
    assert f"A->B.transforms.quiet.type = {KAFKAS}DropHeaders\n" in file.read_text()
    after = load(file, environment={})
    assert flow_of(after).transforms == flow_of(before).transforms


@pytest.mark.parametrize("section", ["checkpointConnector", "heartbeatConnector"])
def test_a_chain_of_another_connector_is_a_warning(tmp_path: Path, section: str) -> None:
    keys = {"transforms": "x", "transforms.x.type": f"{KAFKAS}Filter"}
    config = load(in_strimzi(tmp_path, keys, section), environment={})
    assert flow_of(config).transforms.entries == ()
    said = [one.message for one in config.warnings if one.code is WarningCode.DEAD_KEY]
    assert said == [f"has no effect in a {section}; write it in sourceConnector"] * 2


@pytest.mark.parametrize("lines", [*CHAINS.values(), *ROUTES.values()], ids=[*CHAINS, *ROUTES])
def test_the_application_has_the_same_chain(read: Loader, lines: tuple[str, ...]) -> None:
    flow = flow_of(read(*(f"A->B.{line}" for line in lines)))
    codec = MessageCodec((TransformsWork,))
    there = config_of(codec.decode(codec.encode(transforms_work(flow))))
    for topic in ROUTED_TOPICS:
        assert there.digest_of(topic) == flow.transforms.digest_of(topic)
    assert there.digest == flow.transforms.digest


def test_topics_without_a_step_have_no_digest(read: Loader) -> None:
    lines = chain_lines(("Filter", "predicate = isOrders"))
    found = flow_of(read(*(f"A->B.{line}" for line in lines))).transforms
    assert found.digest_of("payments") == found.digest_of("A.orders") == ""
    assert found.digest_of("orders") != ""
    negated = chain_lines(("Filter", "predicate = isOrders", "negate = true"))
    other = flow_of(read(*(f"A->B.{line}" for line in negated))).transforms
    assert other.digest_of("orders") == "" and other.digest_of("payments") != ""
    assert other.digest != found.digest


def test_a_chain_comes_before_the_transforms_of_twinlog(read: Loader) -> None:
    lines = chain_lines(("Filter", "predicate = isTombstone"))
    mask = ("A->B.twinlog.transforms = s0", "A->B.twinlog.transforms.s0.topics = .*")
    query = "A->B.twinlog.transforms.s0.sql = SELECT * FROM records"
    found = flow_of(read(*(f"A->B.{line}" for line in lines), *mask, query)).transforms
    assert [one.name for one in found.of_topic("x")] == ["transforms.s0", "s0"]
    assert len(found.connect_steps("x")) == 1


FILTER = ("A->B.transforms = x", f"A->B.transforms.x.type = {KAFKAS}Filter")
BY_HEADER = (*FILTER, "A->B.transforms.x.predicate = p", "A->B.predicates = p, q")
IS_TEST = f"A->B.predicates.p.type = {KAFKAS}predicates.HasHeaderKey"
MATCHES = f"A->B.predicates.p.type = {KAFKAS}predicates.TopicNameMatches"
OF = {str(name): ("A->B.transforms = x", f"A->B.transforms.x.type = {name}") for name in Action}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("A->B.transforms = x",),
            f"5: A->B.transforms: x has no type; add A->B.transforms.x.type = {KAFKAS}Filter",
        ),
        (
            ("transforms = x", f"transforms.x.type = {KAFKAS}Filter"),
            f"5: transforms: x has no type; add A->B.transforms.x.type = {KAFKAS}Filter",
        ),
        (
            ("A->B.transforms = x, x", FILTER[1]),
            "5: A->B.transforms: 'x' is listed twice; list each name once",
        ),
        (
            ("A->B.transforms = x,", FILTER[1]),
            "5: A->B.transforms: an entry is empty; remove the needless comma",
        ),
        (OF["InsertHeader"], "6: A->B.transforms.x.type: x has no header; add A->B.transforms.x."),
        (
            (*OF["InsertHeader"], "A->B.transforms.x.header = h"),
            "6: A->B.transforms.x.type: x has no value.literal; add A->B.transforms.x.value.liter",
        ),
        (
            (*OF["DropHeaders"], "A->B.transforms.x.headers = "),
            "7: A->B.transforms.x.headers: x has no headers; add A->B.transforms.x.headers = trac",
        ),
        (BY_HEADER, "7: A->B.transforms.x.predicate: p has no type; add A->B.predicates.p.type ="),
        ((*BY_HEADER, IS_TEST), "9: A->B.predicates.p.type: p has no name; add A->B.predicates.p."),
        (
            (*BY_HEADER, MATCHES),
            "9: A->B.predicates.p.type: p has no pattern; add A->B.predicates.",
        ),
        (
            (*BY_HEADER, MATCHES, "A->B.predicates.p.pattern = a, b("),
            '10: A->B.predicates.p.pattern: "a, b(" is not a valid regular expression: column 5: ',
        ),
        (
            (*FILTER, "A->B.transforms.x.predicate = isTst", "A->B.predicates = isTest"),
            "7: A->B.transforms.x.predicate: predicates does not list isTst; did you mean isTest?",
        ),
        (
            (*FILTER, "A->B.transforms.x.predicate = p"),
            "7: A->B.transforms.x.predicate: predicates does not list p; add p to A->B.predicates",
        ),
        (
            (*FILTER, "A->B.transforms.x.negate = true"),
            "7: A->B.transforms.x.negate: there is no predicate to negate; add A->B.transforms.x.",
        ),
        (
            (*BY_HEADER, IS_TEST, "A->B.predicates.p.name = t", "A->B.transforms.x.negate = yes"),
            '11: A->B.transforms.x.negate: "yes" is not a boolean; write true or false',
        ),
        (
            (*BY_HEADER, MATCHES, "A->B.predicates.p.pattern = a", "twinlog.rename = a:b"),
            f'9: A->B.predicates.p.type: "{KAFKAS}predicates.TopicNameMatches" compares remote ',
        ),
        (
            ("A->B.transforms = x", "A->B.transforms.x.type = RegexRouter"),
            "6: A->B.transforms.x.type: x has no regex; add A->B.transforms.x.regex = A",
        ),
        (
            (
                *("A->B.transforms = x", "A->B.transforms.x.type = RegexRouter"),
                *("A->B.transforms.x.regex = (", "A->B.transforms.x.replacement = b"),
            ),
            '7: A->B.transforms.x.regex: "(" is not a valid regular expression: column 1: ',
        ),
        (
            (
                *("A->B.transforms = x", "A->B.transforms.x.type = RegexRouter"),
                *("A->B.transforms.x.regex = .*", "A->B.transforms.x.replacement = a$1"),
            ),
            '8: A->B.transforms.x.replacement: "a$1" uses $1, but its expression has 0 groups; ',
        ),
    ],
)
def test_a_chain_that_connect_would_not_start_is_refused(
    read: Loader, lines: tuple[str, ...], said: str
) -> None:
    assert refusal(lambda: read(*lines)).startswith(f"mm2.properties:{said}")


@pytest.mark.parametrize(
    "line",
    [
        "A->B.transforms.y.type = com.example.Mask",
        "A->B.transforms.x.negated = true",
        "A->B.transforms.x.headers = trace",
        "A->B.predicates = isOrders",
        "A->B.predicates.isOrders.pattern = orders",
        "predicates = isOrders",
    ],
)
def test_a_line_that_no_step_reads_is_a_warning(read: Loader, line: str) -> None:
    config = read(*FILTER, line)
    (warning,) = warnings_of(config, WarningCode.DEAD_KEY)
    assert (warning.line, warning.key) == (7, line.partition(" ")[0])
    assert warning.message.startswith("no transform of `transforms` reads this line, so it has no")
    assert 7 not in {one.line for one in without_meaning(config)}


def test_a_mirror_refuses_a_chain_where_topics_keep_their_names(read: Loader) -> None:
    config = read(*FILTER, IDENTITY)
    with pytest.raises(ConfigError) as caught:
        refuse_transforms(config)
    assert (caught.value.code, caught.value.key) == ("TRANSFORMS_NOT_RUN", "A->B.transforms")


def test_a_changed_option_is_a_change_of_the_flow(read: Loader) -> None:
    def config(*lines: str) -> MirrorConfig:
        return read(*OF["DropHeaders"], *lines)

    before, after = (config(f"A->B.transforms.x.headers = {one}") for one in ("a", "b"))
    assert changes_between(before, after).lines == ('A->B: A->B.transforms.x.headers: "a" -> "b"',)


def entries(config: MirrorConfig) -> tuple[TransformConfig, ...]:
    return flow_of(config).transforms.entries


def test_a_secret_is_not_shown(read: Loader) -> None:
    lines = ("A->B.transforms.x.header = h", "A->B.transforms.x.value.literal = ${env:TOKEN}")
    providers = (
        "config.providers = env",
        "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    )
    reading: Callable[[str], MirrorConfig] = lambda token: read(  # noqa: E731
        *OF["InsertHeader"], *lines, *providers, environment={"TOKEN": token}
    )
    (one,) = entries(reading("s3cret"))
    assert one.connect is not None and one.connect.value == b"s3cret"
    message = refusal(lambda: reading("12:30"))
    assert "Connect may write <hidden> in another form" in message
