"""The row that says that a flow holds producers back."""

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


def test_without_rates_nobody_is_held() -> None:
    key, value = HeldProducers(flow="A->B", rates=(), at_ms=5).encode()
    assert held_producers(key, value) is None
    assert held_producers(key, None) is None


def test_keys_of_others_are_none_of_it() -> None:
    assert not any(is_held_row(key, "A->B") for key in (None, b"", b"\xff", b"[]", b'{"a":1}'))


@pytest.mark.parametrize("fields", [{}, {"rates": 7, "at_ms": 1}, {"rates": ["x"], "at_ms": 1}])
def test_what_cannot_be_read_is_said(fields: dict[str, object]) -> None:
    key, value = encode_row(["flow", "A->B", "producers-held"], fields)
    with pytest.raises(CorruptData) as caught:
        held_producers(key, value)
    assert caught.value.code == "STATE_CORRUPT"
