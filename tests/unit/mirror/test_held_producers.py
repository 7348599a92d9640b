"""The row of the state topic that records the quota which a flow has set for producers."""

from __future__ import annotations

import pytest

from twinlog.errors import CorruptData
from twinlog.mirror.state.held_producers import HeldProducers, held_producers, is_held_row
from twinlog.mirror.state.intents import is_intent_row
from twinlog.mirror.state.state_row import encode_row


def test_what_was_written_is_read() -> None:
    row = HeldProducers(flow="A->B", rates=(1000, 700), at_ms=5)
    key, value = row.encode()
    assert is_held_row(key, "A->B")
    assert not is_held_row(key, "A->C")
    assert not is_intent_row(key, "A->B")
    assert held_producers(key, value) == row


def test_without_rates_no_producer_is_throttled() -> None:
    key, value = HeldProducers(flow="A->B", rates=(), at_ms=5).encode()
    assert held_producers(key, value) is None
    assert held_producers(key, None) is None


def test_keys_of_other_rows_do_not_match() -> None:
    assert not any(is_held_row(key, "A->B") for key in (None, b"", b"\xff", b"[]", b'{"a":1}'))


@pytest.mark.parametrize("fields", [{}, {"rates": 7, "at_ms": 1}, {"rates": ["x"], "at_ms": 1}])
def test_unreadable_row_is_corrupt(fields: dict[str, object]) -> None:
    key, value = encode_row(["flow", "A->B", "producers-held"], fields)
    with pytest.raises(CorruptData) as caught:
        held_producers(key, value)
    assert caught.value.code == "STATE_CORRUPT"
