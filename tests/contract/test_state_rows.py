"""The bytes that this release leaves on target clusters: later ones must read them for ever.

A changed format gets a new version and new rows here. The rows that are here stay.
"""

from __future__ import annotations

import pytest

from twinlog.errors import CorruptData
from twinlog.mirror.map.mm2_offsets import Pair
from twinlog.mirror.map.offset_map import ChunkRow, Mark, PartitionKey, Run, Term
from twinlog.mirror.state.generations import Claim, closing, winning_claims
from twinlog.mirror.state.verified import VerifyRun, verify_runs
from twinlog.model import TopicId

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


def test_version_1_of_what_a_verification_found() -> None:
    assert VERIFIED_1.encode() == (VERIFIED_1_KEY, VERIFIED_1_VALUE)
    assert verify_runs("us-west->us-east", [(VERIFIED_1_KEY, VERIFIED_1_VALUE)]) == (VERIFIED_1,)


def test_this_release_writes_version_1() -> None:
    assert CLAIM_1.encode() == (CLAIM_1_KEY, CLAIM_1_VALUE)
    assert closing("us-west->us-east", 7) == (CLOSED_1_KEY, CLOSED_1_VALUE)
    assert FULL_ROW_1.encode() == (ROW_1_KEY, FULL_ROW_1_VALUE)
    assert PLAIN_ROW_1.encode() == (ROW_1_KEY, PLAIN_ROW_1_VALUE)
    assert ADOPTED_ROW_1.encode() == (ROW_1_KEY, ADOPTED_ROW_1_VALUE)


def test_fields_that_a_later_release_adds_do_no_harm() -> None:
    """What changes no meaning needs no new version."""
    more = CLAIM_1_VALUE[:-1] + b',"extra":{"a":1}}'
    assert winning_claims([(CLAIM_1_KEY, more)])["us-west->us-east"].latest == CLAIM_1
    more = FULL_ROW_1_VALUE[:-1] + b',"extra":[1]}'
    assert ChunkRow.decode(ROW_1_KEY, more) == FULL_ROW_1


@pytest.mark.parametrize("key", [CLAIM_1_KEY, b'{"of another shape":1}', b"\x02\x00 not JSON"])
def test_a_newer_version_is_refused_whatever_its_key(key: bytes) -> None:
    with pytest.raises(CorruptData, match=r"newer release.*upgrade Twinlog \[STATE_TOO_NEW\]$"):
        winning_claims([(key, b'{"v":2}')])
    with pytest.raises(CorruptData, match=r"version 3.*upgrade Twinlog \[STATE_TOO_NEW\]$"):
        ChunkRow.decode(key, b'{"v":3}')
