"""The process that runs transforms, with a lane's port and without brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.range_port import StubPort, range_of, records_of
from twinlog.config.flow.transforms import OnError
from twinlog.spark.application import (
    ApplicationFailed,
    ApplicationReady,
    ChainStep,
    RangePorts,
    RecordSkipped,
    TransformsApplication,
    TransformsWork,
)
from twinlog.wire.record import Record
from twinlog.wire.record_batch import Codec

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT: Final = Path(__file__).resolve().parents[2]
PASSWORD: Final = "a-password-of-a-cluster"
SECRET: Final = b"4111-1111"
RECORDS: Final = [Record(at, 1_700_000_000_000, b"k", b"%d" % at, ()) for at in range(40)]
QUERY: Final = (
    "SELECT key, CAST(CAST(CAST(value AS STRING) AS INT) * 2 AS STRING) AS value, topic, partition,"
    " offset, timestamp, timestampType, headers FROM records WHERE offset <> 3"
)


@pytest.fixture
def port() -> Iterator[StubPort]:
    made = StubPort()
    yield made
    made.close()


def work(sql: str) -> TransformsWork:
    return TransformsWork(
        flow="A->B",
        chains={"d1": (ChainStep(name="double", sql=sql),)},
        on_error=OnError.SKIP,
        codec=Codec.ZSTD,
        max_bytes=1 << 20,
    )


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")
    monkeypatch.setenv("SOURCE_PASSWORD", PASSWORD)
    monkeypatch.setenv("PSEUDONYM_KEY", "for the function")


@pytest.mark.usefixtures("environment")
@pytest.mark.witness("the application of transforms has no credentials, and ends with its parent")
def test_it_answers_lanes_and_ends_with_its_parent(
    port: StubPort, capfd: pytest.CaptureFixture[str]
) -> None:
    application = TransformsApplication(work(QUERY), environment=["PSEUDONYM_KEY"])
    process = psutil.Process(application.process.pid)
    try:
        messages = application.messages()
        assert next(messages) == ApplicationReady(is_deterministic={"d1": True})
        application.connect(RangePorts(ports=(port.address,)))
        bad = [one if one.offset != 7 else one._replace(value=SECRET) for one in RECORDS]
        port.offer(
            range_of(some, number=number, partition=number)
            for number, some in enumerate((RECORDS, RECORDS, bad))
        )
        eventually(lambda: len(port.answers) == 3)
        expected = [
            one._replace(value=b"%d" % (2 * one.offset)) for one in RECORDS if one.offset != 3
        ]
        assert records_of(port.answers[0]) == records_of(port.answers[1]) == expected
        assert records_of(port.answers[2]) == [one for one in expected if one.offset != 7]
        skipped = next(messages)
        assert skipped == RecordSkipped(
            topic="orders", partition=2, offset=7, text="CAST_INVALID_INPUT"
        )
        family = [process, *process.children(recursive=True)]
        assert len(family) > 3  # a JVM, a daemon and workers
        environments = [one.environ() for one in family if one.is_running()]
        assert not any(PASSWORD in one.values() for one in environments)
        assert process.environ()["PSEUDONYM_KEY"] == "for the function"
    finally:
        application.stop()
    eventually(lambda: not any(one.is_running() for one in family))
    assert SECRET.decode() not in "".join(capfd.readouterr())
    refused = TransformsApplication(work("SELECT count(*) FROM records"))
    try:
        (failed,) = refused.messages()
        assert isinstance(failed, ApplicationFailed)
        assert failed.code == "TRANSFORM_NOT_ROW_BY_ROW"
        assert refused.process.wait() != 0
    finally:
        refused.stop()
