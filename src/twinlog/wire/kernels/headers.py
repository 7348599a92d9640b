"""The kernels for headers in Python: a part of `twin`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from twinlog.errors import CorruptData
from twinlog.wire.kernels.shapes import HeaderColumns, Strings
from twinlog.wire.varint import encode_varint, read_varint


def unpack_headers(data: bytes, starts: array[int], ends: array[int]) -> HeaderColumns:
    """Implement `Kernels.unpack_headers`.

    A key that is not UTF-8 gets U+FFFD for the invalid bytes, as in Java's consumer. Raises
    CorruptData.
    """
    keys, values = bytearray(), bytearray()
    list_ends, key_ends, value_ends = (array("i", [0]) for _ in range(3))
    has_list, has_value = array("b"), array("b")
    try:
        for start, end in zip(starts, ends, strict=True):
            before = len(has_value)
            for key, one in _headers(data, start, end):
                keys += key.decode("utf-8", "replace").encode()
                values += one or b""
                has_value.append(one is not None)
                key_ends.append(len(keys))
                value_ends.append(len(values))
            has_list.append(len(has_value) > before)
            list_ends.append(len(has_value))
    except IndexError:
        raise CorruptData("the data ends inside of a header") from None
    except OverflowError:
        raise CorruptData("the headers of some records are larger than 2 GiB") from None
    ended = (bytearray(one.tobytes()) for one in (list_ends, key_ends, value_ends))
    return HeaderColumns(
        headers=len(has_value),
        ends=next(ended),
        present=_bits(has_list),
        nulls=has_list.count(0),
        keys=keys,
        key_ends=next(ended),
        values=values,
        value_ends=next(ended),
        value_present=_bits(has_value),
        value_nulls=has_value.count(0),
    )


def pack_headers(counts: array[int], key: Strings, value: Strings) -> Strings:
    """Implement `Kernels.pack_headers`."""
    data, starts, sizes = bytearray(), array("q"), array("q")
    pairs = zip(key.rows(), value.rows(), strict=True)
    for count in counts:
        starts.append(len(data))
        if count:
            data += encode_varint(count)
        for _ in range(count):
            one_key, one_value = next(pairs, (None, None))
            if one_key is None:
                raise ValueError("a header has no key")
            data += encode_varint(len(one_key)) + one_key
            data += encode_varint(-1 if one_value is None else len(one_value))
            data += one_value or b""
        sizes.append(len(data) - starts[-1])
    if min(counts, default=0) < 0 or sum(counts) != len(key.sizes):
        raise ValueError("rows have other headers than there are")
    return Strings(bytes(data), starts, sizes)


def _headers(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, bytes | None]]:
    if not 0 <= start <= end <= len(data):
        raise CorruptData(f"headers at bytes {start} to {end} of {len(data)}")
    part, position = data[start:end], 0
    count, position = read_varint(part, position)
    if not 0 <= count <= len(part) - position:
        raise CorruptData(f"{count} headers in {len(part) - position} bytes")
    for _ in range(count):
        size, position = read_varint(part, position)
        if not 0 <= size <= len(part) - position:
            raise CorruptData(f"a header key of {size} bytes, {len(part) - position} are left")
        key = part[position : position + size]
        size, position = read_varint(part, position + size)
        if size > len(part) - position:
            raise CorruptData(f"a header value of {size} bytes, {len(part) - position} are left")
        yield key, part[position : position + size] if size >= 0 else None
        position += max(0, size)
    if position != len(part):
        raise CorruptData(f"headers end at byte {position}, {len(part)} are theirs")


def _bits(flags: array[int]) -> bytearray:
    out = bytearray((len(flags) + 7) // 8)
    for at, flag in enumerate(flags):
        out[at >> 3] |= flag << (at & 7)
    return out
