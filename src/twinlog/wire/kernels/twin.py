"""The kernels in Python: the reference for the compiled kernels, and the fallback without them.

A record (KIP-98), all numbers zigzag varints:

    length, attributes int8 (unused), timestampDelta, offsetDelta,
    key length (negative: null), key, value length (negative: null), value,
    number of headers, each: key length, key, value length (negative: null), value

No length is trusted: a record must end where its length says, and the batch where its last record
ends. Otherwise the batch is corrupt.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from twinlog.errors import CorruptData
from twinlog.wire.kernels import shapes
from twinlog.wire.kernels.shapes import (
    BatchRewrite,
    HeaderColumns,
    JoinState,
    RewrittenBatches,
    ScanState,
    Strings,
    Table,
)
from twinlog.wire.primitives import append_sized, encode_varint, read_varint, read_varlong
from twinlog.wire.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    read_headers,
    verify_crc,
)

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_INT: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the same hash as `Utils.murmur2` of Kafka's clients, as an unsigned number."""
    whole = len(data) & ~3
    value = _SEED ^ len(data)
    for index in range(0, whole, 4):
        part = int.from_bytes(data[index : index + 4], "little") * _M & _INT
        part = (part ^ part >> _R) * _M & _INT
        value = value * _M & _INT ^ part
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _INT
    value = (value ^ value >> 13) * _M & _INT
    return value ^ value >> 15


_INT64_SPAN: Final = 1 << 64
_INT64_MAX: Final = (1 << 63) - 1
_SAFE_TERM: Final = 1 << 62  # the sum of two smaller terms fits into 64 bits
_NOT_AS_IT_IS: Final = CODEC_MASK | LOG_APPEND_TIME_BIT | CONTROL_BIT
_POSITIVE: Final = 0x7FFFFFFF


def _length(number: int) -> int:
    return len(encode_varint(number))


_MANY: Final = 1 << 13
_LENGTHS: Final = bytes(_length(number) for number in range(_MANY))
"""Size of each small integer as a varint (bytes)."""


class Twin:
    """All kernels in Python. An instance has no state."""

    def scan(self, data: bytes, state: ScanState[int], limit: int) -> Table:
        """Return records. After CorruptData, `LEFT` of the state shows which one is corrupt."""
        columns: list[list[int]] = [[] for _ in range(shapes.COLUMNS)]
        try:
            _parse(data, state, limit, columns)
        except IndexError:
            raise CorruptData("the data ends inside the record") from None
        times = columns[shapes.TIMESTAMP]
        if times and not -_SAFE_TERM < min(times) <= max(times) < _SAFE_TERM:
            columns[shapes.TIMESTAMP] = [wrapped(time) for time in times]
        rows = len(times)
        cells = array("q")
        for column in columns:
            cells.fromlist(column)
        return Table(data, cells, rows, rows)

    def measure(
        self, table: Table, row_numbers: array[int], number: int, base: int
    ) -> tuple[int, int, int]:
        size, length = 0, _LENGTHS
        times, rests, ends = (
            table.column(column) for column in (shapes.TIMESTAMP, shapes.REST, shapes.END)
        )
        for index, row in enumerate(row_numbers, number):
            delta = times[row] - base
            body = 1 + ends[row] - rests[row]
            body += length[delta] if 0 <= delta < _MANY else _length(wrapped(delta))
            body += length[index] if index < _MANY else _length(index)
            size += body + (length[body] if body < _MANY else _length(body))
        picked_times = [times[row] for row in row_numbers]
        return size, min(picked_times), max(picked_times)

    def rebuild(
        self,
        table: Table,
        row_numbers: array[int],
        number: int,
        base: int,
        out: bytearray,
        start: int,
    ) -> int:
        payload = _payload(table, row_numbers, number, base)
        if len(payload) > len(out) - start:
            return -1
        out[start : start + len(payload)] = payload
        return len(payload)

    def gather(
        self, table: Table, column: int, first: int, end: int
    ) -> tuple[bytearray, bytearray, bytearray, int]:
        count = end - first
        out, ends, present, nulls = bytearray(), array("i", [0]), bytearray((count + 7) // 8), 0
        sizes = table.column(column + 1, first, end)
        for row, (index, size) in enumerate(
            zip(table.column(column, first, end), sizes, strict=True)
        ):
            if size < 0:
                nulls += 1
            else:
                out += table.data[index : index + size]
                present[row >> 3] |= 1 << (row & 7)
            ends.append(len(out))
        return out, bytearray(ends.tobytes()), present, nulls

    def breaks(self, table: Table, row_numbers: array[int]) -> array[int]:
        offsets = table.column(shapes.OFFSET)
        return array(
            "q",
            (
                n
                for n in range(1, len(row_numbers))
                if offsets[row_numbers[n]] - 1 != offsets[row_numbers[n - 1]]
            ),
        )

    def partition(self, table: Table, row_numbers: array[int], partitions: int) -> list[array[int]]:
        by_partition = [array("q") for _ in range(partitions)]
        data, offsets = table.data, table.column(shapes.OFFSET)
        keys, sizes = table.column(shapes.KEY), table.column(shapes.KEY_SIZE)
        for row in row_numbers:
            size, at = sizes[row], keys[row]
            # the offset is hashed, because with transactions all records may have even or all odd
            # offsets
            key = data[at : at + size] if size >= 0 else offsets[row].to_bytes(8, "big")
            by_partition[(murmur2(key) & _POSITIVE) % partitions].append(row)
        return by_partition

    def pack(self, key: Strings, value: Strings, headers: Strings, times: array[int]) -> Table:
        data, columns = bytearray(), [array("q") for _ in range(shapes.COLUMNS)]
        rows = zip(key.rows(), value.rows(), headers.rows(), times, strict=True)
        for number, (one_key, one_value, encoded, time) in enumerate(rows):
            rest = len(data)
            key_at = append_sized(data, one_key)
            value_at = append_sized(data, one_value)
            headers_at = len(data)
            data += encoded or b"\x00"
            sizes = (-1 if part is None else len(part) for part in (one_key, one_value))
            cells = (number, time, rest, key_at, next(sizes), value_at, next(sizes), headers_at)
            for column, cell in zip(columns, (*cells, len(data)), strict=True):
                column.append(cell)
        flat = array("q")
        for column in columns:
            flat += column
        return Table(bytes(data), flat, len(times), len(times))

    def unpack_headers(self, data: bytes, starts: array[int], ends: array[int]) -> HeaderColumns:
        """Return headers as columns. Invalid UTF-8 in a key becomes U+FFFD, as in Java's consumer.
        Raises CorruptData.
        """
        keys, values = bytearray(), bytearray()
        list_ends, key_ends, value_ends = (array("i", [0]) for _ in range(3))
        has_list, has_value = array("b"), array("b")
        try:
            for start, end in zip(starts, ends, strict=True):
                before = len(has_value)
                for key, value in _headers(data, start, end):
                    keys += key.decode("utf-8", "replace").encode()
                    values += value or b""
                    has_value.append(value is not None)
                    key_ends.append(len(keys))
                    value_ends.append(len(values))
                has_list.append(len(has_value) > before)
                list_ends.append(len(has_value))
        except IndexError:
            raise CorruptData("the data ends inside of a header") from None
        except OverflowError:
            raise CorruptData("the headers of some records are larger than 2 GiB") from None
        ended = (bytearray(ends.tobytes()) for ends in (list_ends, key_ends, value_ends))
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

    def pack_headers(self, counts: array[int], key: Strings, value: Strings) -> Strings:
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
                append_sized(data, one_key)
                append_sized(data, one_value)
            sizes.append(len(data) - starts[-1])
        if min(counts, default=0) < 0 or sum(counts) != len(key.sizes):
            raise ValueError("the number of headers is not the sum of the rows' counts")
        return Strings(bytes(data), starts, sizes)

    def join(self, buffer: memoryview, state: JoinState[int], out: bytearray, start: int) -> int:
        joining = _Joining(state, len(out) - start)
        try:
            for header, at in read_headers(buffer, state[shapes.AT]):
                if not joining.admits(header):
                    break
                if not state[shapes.IS_CHECKED]:
                    verify_crc(buffer, at, header)
                if not joining.add(header, bytes(buffer[at + HEADER_BYTES : at + header.length])):
                    break
        except CorruptData:
            pass  # the caller reads the batch alone, and reports the error
        joining.store_results(state)
        out[start : start + len(joining.payload)] = joining.payload
        return len(joining.payload)

    def rewrite(self, buffer: memoryview, rewrite: BatchRewrite, limit: int) -> RewrittenBatches:
        """Rewrite no batch. `mirror.copy.intake` rewrites single batches, and its code is the
        reference.
        """
        return RewrittenBatches(rewrite.at, rewrite.next_offset, rewrite.leader_epoch, ())


TWIN: Final = Twin()


def wrapped(number: int) -> int:
    """Wrap a number to 64 bits as in Java, where deltas of extreme timestamps overflow."""
    return (number + _INT64_MAX + 1) % _INT64_SPAN - _INT64_MAX - 1


class _Joining:
    """A joined batch that is being built."""

    def __init__(self, state: JoinState[int], room: int) -> None:
        self.payload = bytearray()
        self._room = room
        self._at, self._next, self._end = state[0:3]
        self._few, self._most = state[shapes.FEW], state[shapes.MOST_RECORDS]
        self._headers: list[BatchHeader] = []
        self._records = 0
        self._first = self._latest = 0

    def admits(self, header: BatchHeader) -> bool:
        return (
            header.magic == 2
            and header.base_offset == self._next
            and header.base_offset < self._end
            and header.base_offset <= _INT64_MAX - header.count
            and not header.attributes & 0xFF & _NOT_AS_IT_IS
            and 1 <= header.count <= min(self._few, self._most - self._records)
            and header.is_dense
            and (not self._headers or header.leader_epoch == self._headers[0].leader_epoch)
        )

    def add(self, header: BatchHeader, data: bytes) -> bool:
        state = scan_state(header)
        table = TWIN.scan(data, state, header.count)
        if state[shapes.POSITION] != len(data):
            return False
        times = table.column(shapes.TIMESTAMP)
        first = self._first if self._headers else times[0]
        more = bytearray()
        for row, time in enumerate(times):
            more += _record(table, row, wrapped(time - first), self._records + row)
        if len(more) > self._room - len(self.payload):
            return False
        self._latest = max(*times, self._latest) if self._headers else max(times)
        self._first = first
        self.payload += more
        self._headers.append(header)
        self._records += header.count
        self._at, self._next = self._at + header.length, header.next_offset
        return True

    def store_results(self, state: JoinState[int]) -> None:
        stamps = [header.max_timestamp for header in self._headers] or [0]
        state[shapes.AT], state[shapes.NEXT_OFFSET] = self._at, self._next
        state[shapes.BATCHES] = len(self._headers)
        state[shapes.RECORDS] = self._records
        state[shapes.EPOCH] = self._headers[0].leader_epoch if self._headers else 0
        state[shapes.FIRST_TIMESTAMP] = self._first
        state[shapes.MOST_TIMESTAMP] = self._latest
        state[shapes.MOST_OF_BATCHES] = max(stamps)
        state[shapes.LEAST_OF_BATCHES] = min(stamps)


def scan_state(header: BatchHeader) -> ScanState[int]:
    """Return the initial state for a scan of this batch's payload."""
    is_stamped = header.is_log_append_time
    return array(
        "q",
        (
            0,
            header.count,
            -1,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            is_stamped,
            header.max_timestamp if is_stamped else 0,
        ),
    )


def _payload(table: Table, row_numbers: array[int], number: int, base: int) -> bytearray:
    times = table.column(shapes.TIMESTAMP)
    return bytearray().join(
        _record(table, row, wrapped(times[row] - base), index)
        for index, row in enumerate(row_numbers, number)
    )


def _record(table: Table, row: int, time_delta: int, delta: int) -> bytes:
    at = row + shapes.REST * table.stride
    rest = table.data[table.cells[at] : table.cells[at + (shapes.END - shapes.REST) * table.stride]]
    front = b"\x00" + encode_varint(time_delta) + encode_varint(delta)
    return encode_varint(len(front) + len(rest)) + front + rest


def _parse(  # noqa: C901, PLR0912, PLR0915 - one loop without calls, see below
    data: bytes, state: ScanState[int], limit: int, columns: list[list[int]]
) -> None:
    """Parse at most `limit` records into the columns.

    Varints of one and two bytes are decoded in place, because a call for each of the seven numbers
    of a record would double the time.
    """
    position, left, last_delta, most_delta, base_offset, base_time, has_time, time = state
    offsets, timestamps, rests, keys, key_sizes, values, value_sizes, headers, ends = (
        column.append for column in columns
    )
    size, last = len(data), max(0, left - limit)
    while left > last:
        state[shapes.LEFT] = left
        raw = data[position]
        if raw < 0x80:
            position += 1
            length = (raw >> 1) ^ -(raw & 1)
        elif (second := data[position + 1]) < 0x80:
            position += 2
            raw = raw & 0x7F | second << 7
            length = (raw >> 1) ^ -(raw & 1)
        else:
            length, position = read_varint(data, position)
        end = position + length
        if length < 0 or end > size:
            raise CorruptData(f"its length is {length}, expected 0 to {size - position}")

        position += 1  # skip the attributes, of which none is defined
        raw = data[position]
        if raw < 0x80:
            position += 1
            delta = (raw >> 1) ^ -(raw & 1)
        elif (second := data[position + 1]) < 0x80:
            position += 2
            raw = raw & 0x7F | second << 7
            delta = (raw >> 1) ^ -(raw & 1)
        else:
            delta, position = read_varlong(data, position)
        timestamp = time if has_time else base_time + delta

        raw = data[position]
        if raw < 0x80:
            position += 1
            delta = (raw >> 1) ^ -(raw & 1)
        elif (second := data[position + 1]) < 0x80:
            position += 2
            raw = raw & 0x7F | second << 7
            delta = (raw >> 1) ^ -(raw & 1)
        else:
            delta, position = read_varint(data, position)
        if not last_delta < delta <= most_delta:
            raise CorruptData(
                f"its offset delta is {delta}, expected {last_delta + 1} to {most_delta}"
            )
        last_delta, rest = delta, position

        raw = data[position]
        if raw < 0x80:
            position += 1
            key_size = (raw >> 1) ^ -(raw & 1)
        else:
            key_size, position = read_varint(data, position)
        key = position
        if key_size > 0:
            position += key_size

        raw = data[position]
        if raw < 0x80:
            position += 1
            value_size = (raw >> 1) ^ -(raw & 1)
        elif (second := data[position + 1]) < 0x80:
            position += 2
            raw = raw & 0x7F | second << 7
            value_size = (raw >> 1) ^ -(raw & 1)
        else:
            value_size, position = read_varint(data, position)
        value = position
        if value_size > 0:
            position += value_size

        header = position
        position = _pass_headers(data, position, end) if data[position] else position + 1
        if position != end:
            raise CorruptData(
                f"its fields end at byte {position}, expected {end} according to its length"
            )
        offsets(base_offset + delta)
        timestamps(timestamp)
        rests(rest)
        keys(key)
        key_sizes(key_size)
        values(value)
        value_sizes(value_size)
        headers(header)
        ends(end)
        left -= 1
    state[shapes.POSITION], state[shapes.LEFT] = position, left
    state[shapes.LAST_DELTA] = last_delta


def _pass_headers(data: bytes, position: int, end: int) -> int:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise CorruptData(f"the number of headers is {count}, expected 0 to {end - position}")
    for _ in range(count):
        length, position = read_varint(data, position)
        if not 0 <= length <= end - position:
            raise CorruptData(f"a header key has {length} bytes, expected 0 to {end - position}")
        position += length
        length, position = read_varint(data, position)
        if length > 0:
            position += length
    return position


def _headers(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, bytes | None]]:
    if not 0 <= start <= end <= len(data):
        raise CorruptData(f"headers end at byte {end}, but the data has {len(data)} bytes")
    part, position = data[start:end], 0
    count, position = read_varint(part, position)
    if not 0 <= count <= len(part) - position:
        raise CorruptData(f"the number of headers is {count}, expected 0 to {len(part) - position}")
    for _ in range(count):
        size, position = read_varint(part, position)
        left = len(part) - position
        if not 0 <= size <= left:
            raise CorruptData(f"a header key has {size} bytes, expected 0 to {left}")
        key = part[position : position + size]
        size, position = read_varint(part, position + size)
        if size > (left := len(part) - position):
            raise CorruptData(f"a header value has {size} bytes, expected at most {left}")
        yield key, part[position : position + size] if size >= 0 else None
        position += max(0, size)
    if position != len(part):
        raise CorruptData(f"the headers end at byte {position}, expected {len(part)}")


def _bits(flags: array[int]) -> bytearray:
    out = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        out[index >> 3] |= flag << (index & 7)
    return out
