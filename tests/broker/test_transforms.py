"""`twinlog.transforms` on a real Spark: the helpers, the check of plans, the examples of the page,
and `twinlog transform try`.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType
from pyspark.sql.window import Window

from tests.support.client import Outgoing, produce, read_all
from tests.support.command import Command
from tests.support.connect_chains import CHAINS, RECORDS, after, chain_lines
from tests.support.properties import flow_of, loader
from tests.support.topics import create_topic, delete_topic
from twinlog.config.flow.transforms import TransformConfig
from twinlog.config.regex.patterns import compile_names
from twinlog.config.values.origin import Setting
from twinlog.errors import ConfigError
from twinlog.records.spark_api import HAS_STREAM_WRITERS
from twinlog.sandbox import LocalCluster
from twinlog.transforms import (
    TOMBSTONE,
    Transform,
    cast_json,
    chain,
    check_plan,
    drop,
    drop_headers,
    drop_json,
    has_header,
    hash_json,
    json_is,
    keep,
    key_matches,
    mask_json,
    rekey,
    route,
    set_header,
    sql,
)
from twinlog.transforms.loading import check_transform, load_chain
from twinlog.transforms.plan import COLUMNS

pytestmark = pytest.mark.broker

ROOT: Final = Path(__file__).resolve().parents[2]
NOON: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)
TRIAL_S: Final = 300.0


def frame(
    spark: SparkSession, *values: str | bytes | None, key: bytes | None = b"k", **headers: bytes
) -> DataFrame:
    """Return a DataFrame with records of one partition that have these values, and the same key and
    headers.
    """
    rows = [
        (
            key,
            one.encode() if isinstance(one, str) else one,
            "orders",
            0,
            offset,
            NOON,
            0,
            [*headers.items()] or None,
        )
        for offset, one in enumerate(values)
    ]
    return spark.createDataFrame(rows, ", ".join(f"{n} {kind}" for n, kind in COLUMNS.items()))


def texts(rows: DataFrame) -> list[str | None]:
    """Return the values as text, in the order of offsets."""
    found = rows.orderBy("offset").select("value").collect()
    return [None if row[0] is None else bytes(row[0]).decode() for row in found]


def changed(spark: SparkSession, transform: Transform, value: Any) -> Any:
    """Return the transform's result for a record with one JSON value."""
    (text,) = texts(frame(spark, json.dumps(value)).transform(transform))
    return json.loads(text or "")


def test_fields_of_json(spark: SparkSession) -> None:
    card = {"number": "4111111111111111", "cvc": 123, "name": None}
    order: dict[str, Any] = {
        "card": card,
        "items": [{"card": "12345678", "n": 1}, {"n": 2}, "text"],
        "odd name": "abcdefgh",
        "amount": "12.50",
        "big": 12345678901234567890,
        "none": None,
    }
    cases: list[tuple[Transform, dict[str, Any]]] = [
        (mask_json("$.card.number", keep_last=4), {"card": {**card, "number": "****1111"}}),
        (mask_json("$.card.cvc"), {"card": {**card, "cvc": "****"}}),
        (mask_json("$.card.cvc", keep_last=2), {"card": {**card, "cvc": "****"}}),
        (mask_json("$.card", keep_last=4), {"card": "****"}),
        (mask_json("$.items", keep_last=1), {"items": "****"}),
        (mask_json("$['odd name']", keep_last=4), {"odd name": "****efgh"}),
        (mask_json("$.card.name", "$.none", "$.card.x", "$.x.y", "$.amount.x"), {}),
        (
            mask_json("$.items[*].card", "$.amount"),
            {"items": [{"card": "****", "n": 1}, *order["items"][1:]], "amount": "****"},
        ),
        (drop_json("$.card.cvc"), {"card": {"number": "4111111111111111", "name": None}}),
        (drop_json("$.items[*].n"), {"items": [{"card": "12345678"}, {}, "text"]}),
        (cast_json("$.amount", "decimal(12,2)"), {"amount": 12.5}),
        (cast_json("$.card.cvc", "string"), {"card": {**card, "cvc": "123"}}),
        (
            hash_json("$.amount", key="secret"),
            {"amount": hmac.new(b"secret", b"12.50", hashlib.sha256).hexdigest()},
        ),
        (
            hash_json("$.card.cvc", key=b"x" * 70),
            {
                "card": {
                    **card,
                    "cvc": hmac.new(b"x" * 70, b"123", hashlib.sha256).hexdigest(),
                }
            },
        ),
    ]
    assert [changed(spark, one, order) for one, _ in cases] == [
        {**order, **expected} for _, expected in cases
    ]
    assert changed(spark, drop_json("$.none", "$.items"), order).keys() == (
        order.keys() - {"none", "items"}
    )


def test_chains_of_kafka_connect(spark: SparkSession, tmp_path: Path) -> None:
    """Spark runs chains of Kafka Connect, and gives the same records as the chains' steps in
    Python. `contract/test_java_transforms.py` compares these steps with Java's classes.
    """
    rows = [
        (one.key, one.value, "orders", 0, one.offset, NOON, 0, [*one.headers] or None)
        for one in RECORDS
    ]
    schema = ", ".join(f"{n} {kind}" for n, kind in COLUMNS.items())
    given = spark.createDataFrame(rows, schema)
    for name, lines in CHAINS.items():
        config = flow_of(loader(tmp_path)(*(f"A->B.{line}" for line in lines))).transforms
        for one in config.entries:
            found = check_transform(spark, one)
            assert found.is_deterministic and found.is_proven
        steps = config.connect_steps("orders")
        kept = load_chain(config.of_topic("orders"))(given).orderBy("offset").collect()
        expected = [made for one in RECORDS if (made := after(one, steps)) is not None]
        assert [
            (row.offset, row.key, row.value, tuple(tuple(pair) for pair in row.headers or ()))
            for row in kept
        ] == [(one.offset, one.key, one.value, one.headers) for one in expected], name


def test_values_that_are_not_json(spark: SparkSession) -> None:
    mask = mask_json("$.card")
    odd: list[str | bytes] = [
        "no json",
        '{"card":1}{"card":2}',
        '{"card":1,"card":2}',
        '{"card":1} x',
        '{"card":1}]',
        '{"card":1}],"card"',
        b'"\xff"',
    ]
    for one in odd:
        with pytest.raises(Exception, match=r"orders-0 offset 1: value is not JSON \(mask_json\)"):
            texts(frame(spark, None, one).transform(mask))
    rows = frame(spark, None, *odd[:6], '"card"', "[1]", "7", "null")
    kept = rows.transform(mask_json("$.card", not_json="keep"))
    assert texts(kept) == [None, *odd[:6], '"card"', "[1]", "7", "null"]
    page = (ROOT / "docs" / "transforms.md").read_text()
    (condition,) = re.findall(r'"(value IS NOT NULL AND .+)"', page)
    readable = frame(spark, *odd, None, '{"card":1}', "[1]", "7")
    kept = readable.transform(chain(drop(condition), mask))
    assert texts(kept) == [None, '{"card":"****"}', "[1]", "7"]


@pytest.mark.parametrize("path", ["card", "$", "$card", "$.a..b", "$.a[0]", "$.a[*", "$. a", ""])
def test_paths_that_are_none(path: str) -> None:
    with pytest.raises(ConfigError, match="is not a path; write "):
        mask_json(path)


def test_wrong_arguments() -> None:
    wrongs: tuple[Callable[[], Any], ...] = (
        mask_json,
        drop_headers,
        lambda: drop_json("$.items[*]"),
        lambda: hash_json("$.a", key=""),
        lambda: mask_json("$.a", not_json="skip"),  # type: ignore[arg-type]
    )
    for wrong in wrongs:
        with pytest.raises(ConfigError):
            wrong()


def test_filters_headers_keys_and_topics(spark: SparkSession) -> None:
    bots = frame(spark, '{"bot":true}', '{"bot":"true"}', '{"bot":false}', "{}", None, "no json")
    people = ['{"bot":false}', "{}", None, "no json"]
    assert texts(bots.transform(drop(json_is("$.bot", "true")))) == people
    assert texts(bots.transform(keep(json_is("$.bot", "false", "no")))) == people[:1]
    assert texts(bots.transform(drop(TOMBSTONE))) == [*texts(bots)[:4], "no json"]
    query = sql("SELECT * FROM records WHERE length(value) < 3")
    assert texts(bots.transform(query)) == ["{}"]

    def counts(rows: DataFrame, *conditions: str) -> list[int]:
        return [rows.transform(keep(one)).count() for one in conditions]

    keyed = frame(spark, "v", key=b"eu-1\n")
    keys = [key_matches(one) for one in ("eu-.", "eu-.\n", "eu", "(?s).*", "a'b\\\\c|eu-1\\n")]
    assert counts(keyed, *keys) == [0, 1, 0, 1, 1]
    assert counts(frame(spark, "v", key=None), key_matches(".*")) == [0]
    headed = frame(spark, "v", region=b"eu", trace=b"1")
    headers = [has_header("region"), has_header("region", "eu"), has_header("region", "us")]
    assert counts(headed, *headers, f"NOT {has_header('x')}") == [1, 1, 0, 1]
    assert counts(frame(spark, "v"), *headers, f"NOT {has_header('region')}") == [0, 0, 0, 1]

    def headers_of(rows: DataFrame, transform: Transform) -> list[tuple[str, bytes]]:
        ((found,),) = rows.transform(transform).select("headers").collect()
        return [(one["key"], bytes(one["value"])) for one in found or []]

    after = [("trace", b"1"), ("region", b"it's")]
    assert headers_of(headed, set_header("region", "it's")) == after
    assert headers_of(frame(spark, "v"), set_header("a", "b")) == [("a", b"b")]
    assert headers_of(headed, drop_headers("trace", "x")) == [("region", b"eu")]
    assert headers_of(frame(spark, "v"), drop_headers("trace")) == []

    named = frame(spark, '{"id":7}', '{"id":8}')
    by_id = "get_json_object(CAST(value AS STRING), '$.id')"
    found = named.transform(chain(rekey(by_id), route("eights", where=json_is("$.id", "8"))))
    rows = found.orderBy("offset").select("key", "topic").collect()
    assert [(bytes(one.key), one.topic) for one in rows] == [(b"7", "orders"), (b"8", "eights")]
    with pytest.raises(Exception, match="orders-0 offset 1: the expression of the new key is NULL"):
        frame(spark, '{"id":7}', None).transform(rekey(by_id)).select("key").collect()


upper = F.udf(lambda value: None if value is None else bytes(value).upper(), BinaryType())


def as_they_are(batches: Any) -> Any:
    yield from batches


ROW_BY_ROW: Final[dict[str, Transform]] = {
    "nothing": lambda rows: rows,
    "helpers": chain(
        mask_json("$.a"), drop_json("$.b"), keep(key_matches("a")), set_header("a", "b"), route("x")
    ),
    "new key": rekey("CAST(value AS STRING)"),
    "text": lambda rows: rows.withColumn("value", F.upper(F.col("value").cast("string"))),
    "udf": lambda rows: rows.withColumn("value", upper("value")),
    "query": sql("SELECT *, length(value) AS size FROM records WHERE key IS NOT NULL"),
    "two queries": chain(sql("SELECT * FROM records"), sql("SELECT * FROM records")),
    "arrow": lambda rows: rows.mapInArrow(as_they_are, rows.schema),
    "chance": lambda rows: rows.where("rand() < 0.5"),
    "time": lambda rows: rows.withColumn("timestamp", F.current_timestamp()),
}
REFUSED: Final[dict[str, tuple[Transform, str]]] = {
    "aggregation": (
        lambda rows: rows.groupBy("key").count(),
        "the transform's plan has an aggregation (Aggregate), which needs more than one record",
    ),
    "join": (lambda rows: rows.join(rows.select("key"), "key"), "a join (Join)"),
    "sort": (lambda rows: rows.orderBy("offset"), "a sort (Sort)"),
    "limit": (lambda rows: rows.limit(3), "a limit (GlobalLimit)"),
    "dropDuplicates": (lambda rows: rows.dropDuplicates(["key"]), "dropDuplicates (Deduplicate)"),
    "union": (lambda rows: rows.union(rows), "a union (Union)"),
    "window": (
        lambda rows: rows.withColumn("value", F.max("value").over(Window.partitionBy("key"))),
        "a window function (Window)",
    ),
    "explode": (
        lambda rows: rows.withColumn("value", F.explode(F.array("value", "key"))),
        "explode (Generate)",
    ),
    "repartition": (lambda rows: rows.repartition(3, "key"), "a repartitioning (Repart"),
    "subquery": (
        sql("SELECT * FROM records WHERE offset > (SELECT max(offset) FROM records)"),
        "the transform's plan has a subquery (in Filter)",
    ),
    "no offset": (lambda rows: rows.drop("offset"), "the transform returns no column offset"),
    "another offset": (
        lambda rows: rows.withColumn("offset", F.col("offset") + 1),
        "the transform changes the column offset",
    ),
    "another partition": (
        lambda rows: rows.withColumn("partition", F.lit(0)),
        "the transform changes the column partition",
    ),
    "other data": (
        lambda rows: rows.sparkSession.createDataFrame([], rows.schema),
        "the transform reads other data",
    ),
    "cache": (
        lambda rows: rows.where("offset > 1").cache().drop("size"),
        "the transform caches records",
    ),
    "checkpoint": (
        lambda rows: rows.localCheckpoint(),
        "the transform reads other data (LogicalRDD)",
    ),
    "late checkpoint": (
        lambda rows: rows.localCheckpoint(eager=False),
        "the transform reads other data",
    ),
}
WRONG: Final[dict[str, tuple[Callable[[DataFrame], Any], str, str]]] = {
    "no key": (
        lambda rows: rows.drop("key"),
        "TRANSFORM_COLUMNS",
        "no column key; keep the column",
    ),
    "two keys": (
        lambda rows: rows.select("*", "key"),
        "TRANSFORM_COLUMNS",
        "2 columns key; keep one of them",
    ),
    "number": (
        lambda rows: rows.withColumn("value", F.length("value")),
        "TRANSFORM_COLUMNS",
        "the transform returns the column value as int, not as binary or string; cast it",
    ),
    "nothing": (lambda rows: None, "TRANSFORM_FAILED", "it returned NoneType, not a DataFrame"),
    "missing column": (
        lambda rows: rows.select("keyy"),
        "TRANSFORM_FAILED",
        "the transform failed: AnalysisException: [UNRESOLVED_COLUMN",
    ),
    "bug": (lambda rows: 1 / 0, "TRANSFORM_FAILED", "ZeroDivisionError: division by zero"),
}


def test_transforms_that_are_row_by_row(spark: SparkSession) -> None:
    plans = dict(zip(ROW_BY_ROW, check_plan(spark, ROW_BY_ROW.values()), strict=True))
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    notes = {name: str(plan).partition("; ")[2] for name, plan in plans.items()}
    assert str(plans["nothing"]) == columns
    assert {name: said for name, said in notes.items() if said} == {
        "query": "not written: size",
        "arrow": "mapInPandas and mapInArrow are not proven to be row by row",
        "chance": "not deterministic",
        "time": "not deterministic",
        "new key": "sets the key, and records keep their partition (docs/transforms.md#new-keys)",
    }


def test_transforms_that_are_refused(spark: SparkSession) -> None:
    wrong = {}
    for name, (transform, said) in REFUSED.items():
        with pytest.raises(ConfigError) as caught:
            check_plan(spark, [transform])
        if caught.value.code != "TRANSFORM_NOT_ROW_BY_ROW" or said not in caught.value.what:
            wrong[name] = str(caught.value)
    for name, (other, code, said) in WRONG.items():
        with pytest.raises(ConfigError) as caught:
            check_plan(spark, [other])
        if caught.value.code != code or said not in caught.value.what:
            wrong[name] = str(caught.value)
    assert wrong == {}


def test_functions_of_a_file_that_cannot_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_in_tests.py").write_text("import no_such_module\n")
    (tmp_path / "script_in_tests.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "odd_in_tests.py").write_text(
        "from twinlog.transforms import route\nnumber = 7\nlimit = lambda rows: rows.limit(1)\n"
        "other = route('x')\n"
    )
    said = {
        "no_such_module:f": "cannot be imported: ModuleNotFoundError: No module named 'no_such_m",
        "broken_in_tests:f": "cannot be imported: ModuleNotFoundError: No module named 'no_such_m",
        "script_in_tests:f": "cannot be imported: SystemExit: 0",
        "odd_in_tests:f": "cannot be imported: AttributeError: module 'odd_in_tests' has no attri",
        "odd_in_tests:number": "odd_in_tests:number is not a function, but int; name a function",
        "odd_in_tests:limit": "the transform's plan has a limit (GlobalLimit)",
        "odd_in_tests:other": "give each route a flow of its own with a filter",
    }
    found = {}
    for function, expected in said.items():
        origin = Setting(key="x.function", value=function, file="mm2.properties", line=7)
        pattern = compile_names(["orders"])
        config = TransformConfig(name="x", topics=pattern, function=function, origin=origin)
        with pytest.raises(ConfigError) as caught:
            check_transform(spark, config)
        assert (caught.value.line, caught.value.key) == (7, "x.function")
        found[function] = expected in caught.value.what
    assert found == dict.fromkeys(said, True)


def page_blocks() -> list[str]:
    page = (ROOT / "docs" / "transforms.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(not HAS_STREAM_WRITERS, reason="Spark 4.0 writes no streams")
def test_the_quick_start_works(
    spark: SparkSession, source_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> None:
    (script,) = (one for one in page_blocks() if "readStream" in one)
    target = f"{fresh_topic}-masked"
    for said, meant in (
        ("localhost:9092", source_cluster.bootstrap),
        ("localhost:9093", source_cluster.bootstrap),
        ('"subscribe": "orders"', f'"subscribe": "{fresh_topic}"'),
        ('"orders-masked"}', f'"{target}"}}'),
        ('checkpointLocation="orders-masked"', f'checkpointLocation="{tmp_path}/checkpoint"'),
    ):
        assert script.count(said) == 1
        script = script.replace(said, meant)
    create_topic(source_cluster, fresh_topic, 3)
    create_topic(source_cluster, target, 3)
    orders = [
        Outgoing(b"%d" % n, b'{"customer":"customer-%d","n":%d}' % (n, n), (("h", b"%d" % n),))
        for n in range(100)
    ]
    for some in (orders[:60], [*orders[60:], Outgoing(b"7", None)]):
        produce(source_cluster, fresh_topic, some)
        exec(compile(script, "transforms.md", "exec"), {})  # noqa: S102 (our own page)
    before = read_all(source_cluster, fresh_topic)
    after = read_all(source_cluster, target, isolation="read_committed")

    def masked(value: bytes | None) -> bytes | None:
        return value and re.sub(rb"customer-\d+", b"****", value)

    assert [one._replace(offset=0) for one in after] == [
        one._replace(offset=0, value=masked(one.value)) for one in before
    ]
    for topic in (fresh_topic, target):
        delete_topic(source_cluster, topic)


def test_the_recipes_work(spark: SparkSession) -> None:
    recipes = "\n".join(one for one in page_blocks() if "readStream" not in one)
    names: dict[str, Any] = {}
    exec(compile(recipes, "transforms.md", "exec"), names)  # noqa: S102 (our own page)
    card = {"card": {"number": "4111111111111111", "cvc": 1}, "items": [{"card": "12345678"}]}
    assert changed(spark, names["mask_cards"], card) == {
        "card": {"number": "****1111"},
        "items": [{"card": "****5678"}],
    }
    rows = frame(spark, '{"bot":true}', None, "{}")
    assert texts(rows.transform(names["people"])) == ["{}"]
    assert rows.transform(names["in_europe"]).count() == 0
    assert frame(spark, "x", region=b"eu").transform(names["in_europe"]).count() == 1
    assert frame(spark, "x", key=b"eu-1").transform(names["in_europe"]).count() == 1
    routed = frame(spark, '{"region":"eu","customer":"c1"}', None).transform(names["by_region"])
    ((key, topic),) = routed.select("key", "topic").collect()
    assert (bytes(key), topic) == (b"c1", "orders-eu")
    check_plan(spark, [names[name] for name in ("mask_cards", "people", "by_region", "mask_avro")])
    if importlib.util.find_spec("fastavro"):
        payment = bytes([0, 0, 0, 0, 9, 14, 32]) + b"4111111111111111"
        ((value,),) = frame(spark, payment).transform(names["mask_avro"]).select("value").collect()
        assert bytes(value) == bytes([0, 0, 0, 0, 9, 14, 16]) + b"****1111"


PRIVACY: Final = """
from pyspark.sql import functions as F
from twinlog.transforms import chain, drop, json_is, mask_json

mask = chain(drop(json_is("$.bot", "true")), mask_json("$.card", keep_last=4))

@F.udf("binary")
def checked(value):
    if b"poison" in value:
        raise ValueError("a poisoned record")
    return bytes(value)

def check(rows):
    return rows.withColumn("value", checked("value"))

def newest(rows):
    return rows.orderBy("offset").limit(1)
"""


class Trial:
    """A configuration file with transforms whose functions are in a module in the same folder."""

    def __init__(self, folder: Path, source: str, target: str, topic: str) -> None:
        self.folder, self.source, self.target, self.topic = folder, source, target, topic
        (folder / "privacy_of_tests.py").write_text(PRIVACY)
        self.file = folder / "mm2.properties"

    def run(
        self, *arguments: str, functions: tuple[str, ...], expected: int, more: Sequence[str] = ()
    ) -> Command:
        key = "A->B.twinlog.transforms"
        lines = [
            *("clusters = A, B", f"A.bootstrap.servers = {self.source}"),
            *(f"B.bootstrap.servers = {self.target}", "A->B.enabled = true"),
            *("replication.factor = 1", f"A->B.topics = {self.topic}"),
            f"{key}.on-error = quarantine",
            f"{key} = {', '.join(functions)}",
            *(f"{key}.{one}.topics = {self.topic}" for one in functions),
            *(f"{key}.{one}.function = privacy_of_tests:{one}" for one in functions),
            *more,
        ]
        self.file.write_text("\n".join(lines) + "\n")
        with Command(self.folder / "out", *arguments) as command:
            assert command.wait(TRIAL_S) == expected, command.stderr
        return command


@pytest.fixture
def trial(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Trial:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    create_topic(source_cluster, fresh_topic, 1)
    return Trial(tmp_path, source_cluster.bootstrap, target_cluster.bootstrap, fresh_topic)


@pytest.mark.witness("a trial of transforms shows records before and after, and writes nothing")
def test_a_trial_shows_both_sides_and_writes_nothing(
    trial: Trial, source_cluster: LocalCluster
) -> None:
    topic = trial.topic
    values = [b'{"n":0}', b'{"card":"4111111111111111","n":1}', b'{"bot":true}', b'{"n":"poison"}']
    produce(source_cluster, topic, [Outgoing(b"k", one) for one in [*values, None]])
    before = read_all(source_cluster, topic)
    arguments = ("transform", "try", str(trial.file), "--topic", topic, "--limit", "4")
    functions = ("mask", "check")
    found = trial.run(*arguments, "--format", "json", functions=functions, expected=1).json
    assert found["command"] == "transform try"
    assert (found["topic"], found["transforms"]) == (topic, [*functions])
    assert [(one["offset"], one["outcome"]) for one in found["records"]] == [
        (1, "changed"),
        (2, "filtered"),
        (3, "failed"),
        (4, "failed"),
    ]
    changes = found["records"][0]
    assert changes["before"]["value"] == values[1].decode()
    assert [one["value"] for one in changes["after"]] == ['{"card":"****1111","n":1}']
    assert found["records"][2]["error"] == "ValueError: a poisoned record"
    assert "TypeError" in found["records"][3]["error"], "this function forgets tombstones"
    assert read_all(source_cluster, topic) == before


def test_a_check_runs_the_functions_and_names_unsupported_operators(trial: Trial) -> None:
    functions = ("mask", "newest")
    chain = [f"A->B.{line}" for line in chain_lines(("DropHeaders", "headers = trace"))[:3]]
    text = trial.run("check", str(trial.file), functions=functions, expected=1, more=chain).stdout
    assert text.startswith("NOT READY: 1 problem\n")
    columns = (
        "key binary, value binary, topic string, partition int, offset bigint, "
        "timestamp timestamp, timestampType int, headers array<struct<key:string,value:binary>>\n"
    )
    assert f"transform transforms.s0 of .*: {columns}" in text
    assert f"transform mask of {trial.topic}: {columns}" in text
    assert "on which a transform fails go to mm2-twinlog-dead-letters.A.internal\n" in text
    refused = r"mm2.properties:\d+: A->B.twinlog.transforms.newest.function: the transform's plan "
    assert re.search(
        refused + r"has a limit \(GlobalLimit\), .* \[TRANSFORM_NOT_ROW_BY_ROW\]", text
    )
