"""After the end of a run, no query is sent to its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import BASE
from tests.support.settings import settings_for
from twinlog.config.load import load
from twinlog.control.risk.source_watch import SourceQueries
from twinlog.errors import Disconnected
from twinlog.model import TopicPartition


def test_a_question_after_the_end_opens_no_connection(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text("\n".join(BASE))
    (config, *_) = load(path, environment={}).flows
    queries = SourceQueries(settings_for("127.0.0.1:1"), config)
    queries.close()
    with pytest.raises(Disconnected, match=r"^the client of cluster \w+ is closed"):
        queries.answers([TopicPartition("orders", 0)], (), (), ())
    assert queries._line.client._pool._first is None
