"""Creates realistic records of exactly 1,000 bytes: JSON orders, which lz4 compresses about two to
one.
"""

from __future__ import annotations

import json
import random
import string

__all__ = ["KEY_BYTES", "VALUE_BYTES", "make_key", "make_values"]

VALUE_BYTES = 1000
KEY_BYTES = 10

_CITIES = ("Lisbon", "Turku", "Valparaiso", "Kyoto", "Marrakesh", "Ghent", "Oaxaca", "Brno")
_STATES = ("placed", "paid", "packed", "shipped", "delivered", "returned")
_GOODS = (
    "kettle",
    "lantern",
    "notebook",
    "bicycle bell",
    "teapot",
    "scarf",
    "compass",
    "chess set",
)
_NOTE = (
    "please leave the parcel with the neighbour or behind the green door ring twice call before"
    " delivery fragile keep dry gift wrapping wanted no invoice inside second floor left"
)
_WORDS = _NOTE.split()
_LETTERS = string.ascii_letters + string.digits


def make_values(count: int, seed: int) -> list[bytes]:
    """Return `count` different values. The same seed leads to the same bytes in every run."""
    source = random.Random(seed)
    return [_value(source) for _ in range(count)]


def make_key(number: int) -> bytes:
    """Return the key of the record with this number."""
    return b"%010d" % (number % 10**KEY_BYTES)


def _value(source: random.Random) -> bytes:
    order = {
        "order_id": _token(source, 20),
        "created_at": f"2024-{source.randint(1, 12):02}-{source.randint(1, 28):02}T"
        f"{source.randint(0, 23):02}:{source.randint(0, 59):02}:{source.randint(0, 59):02}.000Z",
        "state": source.choice(_STATES),
        "customer": {
            "customer_id": source.randint(10**8, 10**9),
            "city": source.choice(_CITIES),
            "email": f"{_token(source, 12).lower()}@example.org",
        },
        "items": [_item(source) for _ in range(4)],
        "signature": _token(source, 240),
        "note": "",
    }
    # the note pads the record to the size of all records
    room = VALUE_BYTES - len(json.dumps(order, separators=(",", ":")))
    order["note"] = " ".join(source.choices(_WORDS, k=room))[:room]
    return json.dumps(order, separators=(",", ":")).encode()


def _item(source: random.Random) -> dict[str, object]:
    return {
        "sku": _token(source, 10).upper(),
        "title": source.choice(_GOODS),
        "quantity": source.randint(1, 9),
        "price_cents": source.randint(100, 99_999),
    }


def _token(source: random.Random, length: int) -> str:
    return "".join(source.choices(_LETTERS, k=length))
