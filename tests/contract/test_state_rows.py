"""The bytes that this release writes to target clusters, because later releases must be able to
read them.

If a format changes, it gets a new version, and its rows are added here. Existing rows must not be
changed.
"""

from __future__ import annotations

import pytest

from twinlog.config.values.renames import RemoteName, Router
from twinlog.errors import CorruptData
from twinlog.mirror.map.mm2_offsets import Pair
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, Run, Term
from twinlog.mirror.skips import Poison, Skip
from twinlog.mirror.state.copies import CopyRow, losing_map, mapped_copies, noting_rows
from twinlog.mirror.state.generations import (
    Claim,
    closing_row,
    fan_producers,
    has_written_row,
    producer_row,
    producers_of,
    winning_claims,
)
from twinlog.mirror.state.held_producers import HeldProducers
from twinlog.mirror.state.intents import Intent, IntentKind, WantedAcceptance, WantedSkip
from twinlog.mirror.state.published import (
    Behind,
    Kept,
    Proof,
    PublishedEvent,
    PublishedEvents,
    PublishedStatus,
    Unusual,
)
from twinlog.mirror.state.state_row import StateRow, read_row
from twinlog.mirror.state.transformed import TransformedTopics
from twinlog.mirror.state.verified import VerifyRun, verify_runs
from twinlog.model import NO_TOPIC_ID, TopicId

CLAIM_1 = Claim(
    flow="us-west->us-east",
    generation=7,
    claimant="5f0c1a9e8d7b4c3a9f2e1d0c0b0a9988",
    producer_id=4_001,
    meaning="0123456789abcdef",
    host="mirror-1.example",
    pid=4711,
    started_ms=1_790_000_000_123,
    source_cluster_id="fMCL8kv1SWm87L_Md-I2hg",
    target_cluster_id="AbCdEfGhIjKlMnOpQrStUv",
)
CLAIM_1_KEY = b'["flow","us-west->us-east","generation",7,"5f0c1a9e8d7b4c3a9f2e1d0c0b0a9988"]'
CLAIM_1_VALUE = (
    b'{"v":1,"producer_id":4001,"meaning":"0123456789abcdef","host":"mirror-1.example",'
    b'"pid":4711,"started_ms":1790000000123,"source_cluster_id":"fMCL8kv1SWm87L_Md-I2hg",'
    b'"target_cluster_id":"AbCdEfGhIjKlMnOpQrStUv"}'
)
CLOSED_1_KEY = b'["flow","us-west->us-east","closed",7]'
CLOSED_1_VALUE = b'{"v":1}'

KEY = PartitionKey(
    TopicId("00112233445566778899aabbccddeeff"), TopicId("ffeeddccbbaa99887766554433221100"), 11
)
ROW_1_KEY = b'["00112233445566778899aabbccddeeff","ffeeddccbbaa99887766554433221100",11,7,2,5]'
FULL_ROW_1 = ChunkRow(
    key=KEY,
    term=Term(7, 2),
    chunk=5,
    topic="orders",
    runs=(Run(0, 100, 70), Run(3, 104, 73), Run(2**31 + 5, 2**40, 2**31 + 78)),
    mark=Mark(2**31, 2**31 + 70),
    fingerprint=0xDEADBEEF,
    producer_id=4_001,
)
FULL_ROW_1_VALUE = (
    b'{"v":1,"topic":"orders","runs":[0,100,70,3,4,3,2147483650,1099511627672,2147483653],'
    b'"mark":[2147483648,2147483718],"crc":3735928559,"pid":4001}'
)
ADOPTED_ROW_1 = ChunkRow(
    key=KEY,
    term=Term(7, 2),
    chunk=5,
    topic="orders",
    runs=(Run(0, 300, 290),),
    before=(Pair(0, 0), Pair(202, 2**40)),
)
ADOPTED_ROW_1_VALUE = (
    b'{"v":1,"topic":"orders","runs":[0,300,290],"before":[0,0,202,1099511627776]}'
)
PLAIN_ROW_1 = ChunkRow(
    key=KEY, term=Term(7, 2), chunk=5, topic="orders", runs=(Run(0, 0, 0),), producer_id=-1
)
PLAIN_ROW_1_VALUE = b'{"v":1,"topic":"orders","runs":[0,0,0]}'


BRANCH_ROW_2_KEY = (
    b'["00112233445566778899aabbccddeeff","ffeeddccbbaa99887766554433221100",11,7,2,5,3,12]'
)
BRANCH_ROW_2 = ChunkRow(
    key=KEY._replace(branch=3, branches=12),
    term=Term(7, 2),
    chunk=5,
    topic="orders",
    runs=(Run(0, 0, 0), Run(9, 40, 12)),
    producer_id=4_002,
)
BRANCH_ROW_2_VALUE = b'{"v":2,"topic":"orders","runs":[0,0,0,9,40,12],"pid":4002}'


def test_version_2_of_an_offset_map_row_is_that_of_a_branch() -> None:
    assert ChunkRow.decode(BRANCH_ROW_2_KEY, BRANCH_ROW_2_VALUE) == BRANCH_ROW_2
    assert BRANCH_ROW_2.encode() == (BRANCH_ROW_2_KEY, BRANCH_ROW_2_VALUE)


TRANSFORMED_ROW_3 = ChunkRow(
    key=KEY,
    term=Term(7, 2),
    chunk=5,
    topic="orders",
    runs=(Run(0, 5, 0), Run(2, 9, 2)),
    producer_id=4_002,
    transform="00ff",
)
TRANSFORMED_ROW_3_VALUE = (
    b'{"v":3,"topic":"orders","runs":[0,5,0,2,4,2],"pid":4002,"transform":"00ff"}'
)


def test_version_3_of_an_offset_map_row_is_that_of_transformed_records() -> None:
    assert ChunkRow.decode(ROW_1_KEY, TRANSFORMED_ROW_3_VALUE) == TRANSFORMED_ROW_3
    assert TRANSFORMED_ROW_3.encode() == (ROW_1_KEY, TRANSFORMED_ROW_3_VALUE)


def test_version_1_of_a_claim() -> None:
    (history,) = winning_claims([(CLAIM_1_KEY, CLAIM_1_VALUE)]).values()
    assert history.latest == CLAIM_1
    assert not history.is_closed


def test_version_1_of_a_generation_that_ended_in_order() -> None:
    rows = [(CLAIM_1_KEY, CLAIM_1_VALUE), (CLOSED_1_KEY, CLOSED_1_VALUE)]
    assert winning_claims(rows)["us-west->us-east"].is_closed


@pytest.mark.parametrize(
    ("row", "value"),
    [
        (FULL_ROW_1, FULL_ROW_1_VALUE),
        (PLAIN_ROW_1, PLAIN_ROW_1_VALUE),
        (ADOPTED_ROW_1, ADOPTED_ROW_1_VALUE),
    ],
)
def test_version_1_of_an_offset_map_row(row: ChunkRow, value: bytes) -> None:
    assert ChunkRow.decode(ROW_1_KEY, value) == row


VERIFIED_1 = VerifyRun(
    flow="us-west->us-east",
    began_ms=1_790_000_000_123,
    ended_ms=1_790_000_060_123,
    who="ann@ops-1.example",
    answer="different",
    topics="orders.*",
    since=None,
    until="2026-01-31T12:00Z",
    deep=False,
    partitions=12,
    equal_records=51_204_118,
    ranges={"missing": 1},
    not_compared=0,
    configs=2,
    groups=3,
    sha256="00ff" * 16,
)
VERIFIED_1_KEY = b'["flow","us-west->us-east","verified","part"]'
VERIFIED_1_VALUE = (
    b'{"v":1,"began_ms":1790000000123,"ended_ms":1790000060123,"who":"ann@ops-1.example",'
    b'"answer":"different","topics":"orders.*","since":null,"until":"2026-01-31T12:00Z",'
    b'"deep":false,"partitions":12,"equal_records":51204118,"ranges":{"missing":1},'
    b'"not_compared":0,"configs":2,"groups":3,"sha256":"' + b"00ff" * 16 + b'"}'
)


def test_version_1_of_a_verifications_result() -> None:
    assert VERIFIED_1.encode() == (VERIFIED_1_KEY, VERIFIED_1_VALUE)
    assert verify_runs("us-west->us-east", [(VERIFIED_1_KEY, VERIFIED_1_VALUE)]) == (VERIFIED_1,)


FLOW = "us-west->us-east"
SOURCE = TopicId("00112233445566778899aabbccddeeff")
TARGET = TopicId("ffeeddccbbaa99887766554433221100")
ODD = "caf\u00e9 \U0001f600 \ud800"
"""Text outside ASCII with half of a surrogate pair, which names of people and files may contain."""

ODD_JSON = rb"caf\u00e9 \ud83d\ude00 \ud800"
ROWS_1: list[tuple[StateRow, bytes, bytes]] = [
    (CLAIM_1, CLAIM_1_KEY, CLAIM_1_VALUE),
    (VERIFIED_1, VERIFIED_1_KEY, VERIFIED_1_VALUE),
    (
        CopyRow(
            flow=FLOW,
            topic="us-west.orders",
            topic_id=TARGET,
            target_cluster_id="b",
            source_cluster_id="a",
            source_topic="orders",
            source_topic_id=SOURCE,
            lineage=("c", "d"),
            begun=True,
            ended=False,
            source_alias="west",
            renamed=True,
        ),
        b'["flow","us-west->us-east","copy","us-west.orders"]',
        b'{"v":1,"topic_id":"ffeeddccbbaa99887766554433221100","target_cluster_id":"b",'
        b'"source_cluster_id":"a","source_topic":"orders",'
        b'"source_topic_id":"00112233445566778899aabbccddeeff","lineage":["c","d"],'
        b'"begun":true,"ended":false,"source_alias":"west","renamed":true}',
    ),
    (
        CopyRow(
            flow=FLOW,
            topic="",
            topic_id=NO_TOPIC_ID,
            target_cluster_id="b",
            source_cluster_id="a",
            source_topic="orders",
            source_topic_id=SOURCE,
            lineage=(),
            begun=False,
            ended=True,
        ),
        b'["flow","us-west->us-east","copy",""]',
        b'{"v":1,"topic_id":"00000000000000000000000000000000","target_cluster_id":"b",'
        b'"source_cluster_id":"a","source_topic":"orders",'
        b'"source_topic_id":"00112233445566778899aabbccddeeff","lineage":[],'
        b'"begun":false,"ended":true}',
    ),
    (
        Intent(
            flow=FLOW,
            kind=IntentKind.LIMIT,
            is_set=True,
            bytes_per_second=1_000_000,
            who="ann@ops",
            at_ms=1_790_000_000_123,
            reason=ODD,
        ),
        b'["flow","us-west->us-east","intent","limit",""]',
        b'{"v":1,"is_set":true,"bytes_per_second":1000000,"who":"ann@ops",'
        b'"at_ms":1790000000123,"reason":"' + ODD_JSON + b'"}',
    ),
    (
        Intent(
            flow=FLOW,
            kind=IntentKind.PROMOTE,
            topic="orders",
            is_set=False,
            bytes_per_second=None,
            who="ann@ops",
            at_ms=7,
            reason="",
        ),
        b'["flow","us-west->us-east","intent","promote","orders"]',
        b'{"v":1,"is_set":false,"bytes_per_second":null,"who":"ann@ops","at_ms":7,"reason":""}',
    ),
    (
        WantedSkip(
            flow=FLOW,
            topic="orders",
            topic_id=SOURCE,
            partition=3,
            first=5,
            next=9,
            is_batch=True,
            code="CORRUPT_BATCH",
            who="ann@ops",
            at_ms=7,
            reason="r",
        ),
        b'["flow","us-west->us-east","intent","skip","orders",'
        b'"00112233445566778899aabbccddeeff",3,5]',
        b'{"v":1,"next":9,"is_batch":true,"code":"CORRUPT_BATCH","who":"ann@ops","at_ms":7,'
        b'"reason":"r"}',
    ),
    (
        WantedAcceptance(
            flow=FLOW,
            topic="us-west.orders",
            topic_id=TARGET,
            partition=3,
            first=75,
            ranges=(75, 78, 80, 81),
            k=74,
            digest=5,
            who="ann@ops",
            at_ms=7,
            reason="r",
        ),
        b'["flow","us-west->us-east","intent","accept","us-west.orders",'
        b'"ffeeddccbbaa99887766554433221100",3,75]',
        b'{"v":1,"ranges":[75,78,80,81],"k":74,"digest":5,"who":"ann@ops","at_ms":7,"reason":"r"}',
    ),
    (
        HeldProducers(flow=FLOW, rates=(1000, 700), at_ms=5),
        b'["flow","us-west->us-east","producers-held"]',
        b'{"v":1,"rates":[1000,700],"at_ms":5}',
    ),
    (
        TransformedTopics(
            flow=FLOW,
            entries=("pay.*", "orders"),
            compares=RemoteName("A.", (Router("cut", r"A\.(.*)", "$1", ".*"),)),
            is_negated=True,
            at_ms=5,
        ),
        b'["flow","us-west->us-east","transformed",["pay.*","orders"],{"prefix":"A.","routers":'
        b'[{"name":"cut","regex":"A\\\\.(.*)","replacement":"$1","topics":".*",'
        b'"is_negated":false}]},true]',
        b'{"v":1,"at_ms":5}',
    ),
    (
        PublishedStatus(
            flow=FLOW,
            at_ms=1_800_000_000_000,
            every_ms=5000,
            host="east-1",
            pid=77,
            generation=4,
            state="RUNNING",
            reason=ODD,
            guarantee="exact",
            lanes=2,
            since_ms=1_799_999_000_000,
            records=100,
            bytes=10_000,
            loss_records=3,
            loss_ms=1200,
            loss_unknown=0,
            partitions=12,
            unusual_partitions=2,
            unusual=(
                Unusual(topic="pay", partition=3, state="FAILED", code="X", message="pay-3: no"),
                Unusual(
                    topic="pay",
                    partition=4,
                    state="FAILED",
                    code="CORRUPT_BATCH",
                    message=ODD,
                    poison=Poison(skip=Skip(first=5, next=9, is_batch=True), topic_id=SOURCE),
                ),
            ),
            behind=(Behind(topic="orders", partition=2, upstream=20, end=50),),
            lag=3,
            lag_unknown=1,
            rpo_ms=1000,
            rpo_excess="why",
            proof=Proof(mode="sample", at_ms=5, records=3, differences=0, is_complete=False),
            p50_ms=7,
            p99_ms=95,
            code="DIVERGED",
            kept=Kept(ms=None, topic="orders", near_deletion=("a", "b"), is_known=True),
        ),
        b'["flow","us-west->us-east","status"]',
        b'{"v":1,"at_ms":1800000000000,"every_ms":5000,"host":"east-1","pid":77,"generation":4,'
        b'"state":"RUNNING","reason":"' + ODD_JSON + b'","guarantee":"exact","lanes":2,'
        b'"since_ms":1799999000000,"records":100,"bytes":10000,"loss_records":3,"loss_ms":1200,'
        b'"loss_unknown":0,"partitions":12,"unusual_partitions":2,"unusual":[{"topic":"pay",'
        b'"partition":3,"state":"FAILED","code":"X","message":"pay-3: no","poison":null},'
        b'{"topic":"pay","partition":4,"state":"FAILED","code":"CORRUPT_BATCH","message":"'
        + ODD_JSON
        + b'","poison":{"skip":{"first":5,"next":9,"is_batch":true},'
        b'"topic_id":"00112233445566778899aabbccddeeff"}}],"behind":[{"topic":"orders",'
        b'"partition":2,"upstream":20,"end":50}],"lag":3,"lag_unknown":1,"rpo_ms":1000,'
        b'"rpo_excess":"why","proof":{"mode":"sample","at_ms":5,"records":3,"differences":0,'
        b'"is_complete":false},"p50_ms":7,"p99_ms":95,"code":"DIVERGED","kept":{"ms":-1,'
        b'"topic":"orders","near_deletion":["a","b"],"is_known":true}}',
    ),
    (
        PublishedStatus(
            flow=FLOW,
            at_ms=1_800_000_000_000,
            every_ms=5000,
            host="east-1",
            pid=77,
            generation=None,
            state="FAILED",
            reason="",
            guarantee="",
            lanes=0,
            since_ms=1_799_999_000_000,
            records=0,
            bytes=0,
            loss_records=None,
            loss_ms=None,
            loss_unknown=0,
            partitions=0,
            unusual_partitions=0,
            unusual=(),
        ),
        b'["flow","us-west->us-east","setup"]',
        b'{"v":1,"at_ms":1800000000000,"every_ms":5000,"host":"east-1","pid":77,"generation":-1,'
        b'"state":"FAILED","reason":"","guarantee":"","lanes":0,"since_ms":1799999000000,'
        b'"records":0,"bytes":0,"loss_records":-1,"loss_ms":-1,"loss_unknown":0,"partitions":0,'
        b'"unusual_partitions":0,"unusual":[],"behind":[],"lag":-1,"lag_unknown":-1,"rpo_ms":-1,'
        b'"rpo_excess":"","proof":null,"p50_ms":-1,"p99_ms":-1,"code":"","kept":null}',
    ),
    (
        PublishedEvents(
            flow=FLOW,
            host="east-1",
            pid=77,
            events=(
                PublishedEvent(
                    number=7,
                    at_ms=1_800_000_000_000,
                    level="WARNING",
                    message=ODD,
                    code="DIVERGED",
                    topic="orders",
                    partition=None,
                    person="ann",
                ),
            ),
            run="5f2c",
        ),
        b'["flow","us-west->us-east","events"]',
        b'{"v":1,"host":"east-1","pid":77,"events":[{"number":7,"at_ms":1800000000000,'
        b'"level":"WARNING","message":"' + ODD_JSON + b'","code":"DIVERGED","topic":"orders",'
        b'"partition":-1,"person":"ann"}],"run":"5f2c"}',
    ),
]


@pytest.mark.parametrize(
    ("row", "key", "value"),
    ROWS_1,
    ids=[f"{one[0].row_kind[-1]}-{n}" for n, one in enumerate(ROWS_1)],
)
def test_version_1_of_a_declared_row(row: StateRow, key: bytes, value: bytes) -> None:
    assert row.encode() == (key, value)
    later = value[:-1] + b',"later":{"a":[1]}}'
    for known in (value, later):
        parts, fields = read_row(key, known)
        decoded = type(row).decode(parts[:3] if isinstance(row, VerifyRun) else parts, fields)
        assert decoded == row
        assert decoded.encode() == (key, value)


def test_version_1_of_producer_ids_and_of_partitions_with_rows_in_the_map() -> None:
    given, wrote = producer_row(FLOW, 3, "5f0c", 4002), has_written_row(FLOW, 4003)
    assert given == (
        b'["flow","us-west->us-east","producer",3,"5f0c"]',
        b'{"v":1,"producer_id":4002}',
    )
    assert wrote == (b'["flow","us-west->us-east","wrote",4003]', b'{"v":1,"producer_id":4003}')
    assert fan_producers([given]) == {(FLOW, 3): 4002}
    assert producers_of(FLOW, [wrote]) == {4003}
    noted, lost = noting_rows(FLOW, (SOURCE, TARGET), {0, 1, 2, 7}), losing_map(FLOW, 8, {SOURCE})
    assert noted == (
        b'["flow","us-west->us-east","mapped","00112233445566778899aabbccddeeff",'
        b'"ffeeddccbbaa99887766554433221100"]',
        b'{"v":1,"partitions":3,"others":[7]}',
    )
    assert lost == (
        b'["flow","us-west->us-east","map-lost",8]',
        b'{"v":1,"targets":["00112233445566778899aabbccddeeff"]}',
    )
    assert noting_rows(FLOW, (SOURCE, TARGET), {0})[1] == b'{"v":1,"partitions":1}'
    copies = mapped_copies(FLOW, [noted, lost])
    assert copies.partitions == {(SOURCE, TARGET): {0, 1, 2, 7}}
    assert copies.lost == {SOURCE}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((b'"begun":true', b'"begun":1'), "STATE_CORRUPT"),
        ((b'"lineage":["c","d"],', b""), "STATE_CORRUPT"),
        ((b'"v":1', b'"v":2'), "STATE_TOO_NEW"),
    ],
)
def test_a_declared_row_without_a_field_or_of_another_type_is_refused(
    change: tuple[bytes, bytes], code: str
) -> None:
    row, key, value = ROWS_1[2]
    assert change[0] in value
    with pytest.raises(CorruptData) as caught:
        type(row).decode(*read_row(key, value.replace(*change)))
    assert caught.value.code == code


def test_this_release_writes_version_1() -> None:
    assert CLAIM_1.encode() == (CLAIM_1_KEY, CLAIM_1_VALUE)
    assert closing_row("us-west->us-east", 7) == (CLOSED_1_KEY, CLOSED_1_VALUE)
    assert FULL_ROW_1.encode() == (ROW_1_KEY, FULL_ROW_1_VALUE)
    assert PLAIN_ROW_1.encode() == (ROW_1_KEY, PLAIN_ROW_1_VALUE)
    assert ADOPTED_ROW_1.encode() == (ROW_1_KEY, ADOPTED_ROW_1_VALUE)


def test_fields_that_a_later_release_adds_do_no_harm() -> None:
    """Fields that a later release adds are ignored, so an addition without a new meaning needs no
    new version.
    """
    more = CLAIM_1_VALUE[:-1] + b',"extra":{"a":1}}'
    assert winning_claims([(CLAIM_1_KEY, more)])["us-west->us-east"].latest == CLAIM_1
    more = FULL_ROW_1_VALUE[:-1] + b',"extra":[1]}'
    assert ChunkRow.decode(ROW_1_KEY, more) == FULL_ROW_1


@pytest.mark.parametrize("key", [CLAIM_1_KEY, b'{"of another shape":1}', b"\x02\x00 not JSON"])
def test_a_newer_version_is_refused_whatever_its_key(key: bytes) -> None:
    with pytest.raises(CorruptData, match=r"newer release.*upgrade Twinlog \[STATE_TOO_NEW\]$"):
        winning_claims([(key, b'{"v":2}')])
    with pytest.raises(CorruptData, match=r"version 4.*upgrade Twinlog \[STATE_TOO_NEW\]$"):
        ChunkRow.decode(key, b'{"v":4}')
