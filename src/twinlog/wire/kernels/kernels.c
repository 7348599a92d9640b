/* Loops over the bytes of record batches that are too slow in Python; `twin.py` has the same
 * functions in Python.
 *
 * Rules of this file:
 * - No library, no allocation, no global that is written after `twinlog_prepare`: all memory that
 *   is read or written is passed by the caller, with its size.
 * - Before a byte is read, its position is compared with the end; before a byte is written, the
 *   remaining room is checked. A length is compared before it is added. Sums that may overflow are
 *   unsigned.
 * - Errors are not explained: the result is BAD, and the twin then finds the message.
 *
 * It does not use Python's API, so one library serves all Python versions. `twinlog_version` must
 * match `library.py`.
 */

#include <stdint.h>
#include <stddef.h>

typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;

#define EXPORT __attribute__((visibility("default")))
#define BAD (-1)

/* columns of a table: `stride` values each */
enum { OFFSET, TIMESTAMP, REST, KEY, KEY_SIZE, VALUE, VALUE_SIZE, HEADERS, END };

/* numbers of `scan` that are kept between two calls */
enum { POSITION, LEFT, LAST_DELTA, MOST_DELTA, BASE_OFFSET, BASE_TIME, HAS_TIME, TIME };

/* maximum bytes of a record before its key length: length, attributes, two deltas */
#define MOST_FRONT (5 + 1 + 10 + 5)

EXPORT i64 twinlog_version(void) { return 5; }

/* ---- integers ---- */

/* Reads a zigzag varint of at most `most` bytes (5 or 10) that ends at or before `end`; returns 0
 * if it is truncated or too long. */
static inline int read_int(const u8 *data, i64 *position, i64 end, int most, i64 *value) {
    u64 raw = 0;
    i64 at = *position;
    for (int n = 0; n < most; n++) {
        if (at >= end) return 0;
        u8 byte = data[at++];
        raw |= (u64)(byte & 0x7F) << (7 * n);
        if (byte < 0x80) {
            if (most == 5) raw &= 0xFFFFFFFFu;
            *value = (i64)(raw >> 1) ^ -(i64)(raw & 1);
            *position = at;
            return 1;
        }
    }
    return 0;
}

static inline int read32(const u8 *data, i64 *position, i64 end, i64 *value) {
    if (*position < end && data[*position] < 0x80) {
        i64 raw = data[(*position)++];
        *value = (raw >> 1) ^ -(raw & 1);
        return 1;
    }
    return read_int(data, position, end, 5, value);
}

static inline i64 size_of(i64 value) {
    u64 raw = ((u64)value << 1) ^ (u64)(value >> 63);
    i64 size = 1;
    while (raw > 0x7F) {
        raw >>= 7;
        size++;
    }
    return size;
}

static inline u8 *write_int(u8 *out, i64 value) {
    u64 raw = ((u64)value << 1) ^ (u64)(value >> 63);
    while (raw > 0x7F) {
        *out++ = (u8)(raw | 0x80);
        raw >>= 7;
    }
    *out++ = (u8)raw;
    return out;
}

static inline u64 big64(const u8 *at) {
    u64 value;
    __builtin_memcpy(&value, at, 8);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap64(value) : value;
}

static inline u32 big32(const u8 *at) {
    u32 value;
    __builtin_memcpy(&value, at, 4);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap32(value) : value;
}

static inline void put64(u8 *at, u64 value) {
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) value = __builtin_bswap64(value);
    __builtin_memcpy(at, &value, 8);
}

static inline void put32(u8 *at, u32 value) {
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) value = __builtin_bswap32(value);
    __builtin_memcpy(at, &value, 4);
}

static inline u64 little64(const u8 *at) {
    u64 value;
    __builtin_memcpy(&value, at, 8);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? value : __builtin_bswap64(value);
}

static inline u32 little32(const u8 *at) {
    u32 value;
    __builtin_memcpy(&value, at, 4);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? value : __builtin_bswap32(value);
}

/* memcpy, because the compiler would turn a hand-written loop into a call of it anyway. */
static inline void copy(u8 *to, const u8 *from, i64 size) {
    if (size > 0) __builtin_memcpy(to, from, (size_t)size);
}

/* ---- CRC32C ---- */

#define POLYNOMIAL 0x82F63B78u /* reflected: bit 31 is x^0 */
#define CRC_BEGIN 0xFFFFFFFFu
#define POWERS 32

static u32 crc_table[8][256];
static u32 power[POWERS]; /* x^(8 * 2^k): the effect of 2^k zero bytes on a register */

/* The product of two polynomials modulo CRC32C's. */
static u32 times(u32 a, u32 b) {
    u32 product = 0;
    for (u32 bit = 0x80000000u; bit; bit >>= 1) {
        if (b & bit) product ^= a;
        a = a & 1 ? a >> 1 ^ POLYNOMIAL : a >> 1;
    }
    return product;
}

#if defined(__x86_64__) && !defined(PORTABLE)
#define HAS_INSTRUCTIONS 1
#define BY_INSTRUCTION __attribute__((target("sse4.2,pclmul")))
#define STRIPE_POWER 9
#define STRIPE (1 << STRIPE_POWER)

typedef long long pair __attribute__((vector_size(16)));
static int has_instructions;
static u32 lower_power[POWERS]; /* x^(8 * 2^k - 33), because `product_of` adds the 33 */

BY_INSTRUCTION static inline u32 product_of(u32 a, u32 b) {
    pair product = __builtin_ia32_pclmulqdq128((pair){a, 0}, (pair){b, 0}, 0);
    return (u32)__builtin_ia32_crc32di(0, (u64)product[0]);
}

/* Uses three registers in turn, because each instruction waits for the result of its register. */
BY_INSTRUCTION static u32 crc_by_instruction(const u8 *data, i64 size, u32 crc) {
    u64 first = crc;
    for (; size >= 3 * STRIPE; data += 3 * STRIPE, size -= 3 * STRIPE) {
        u64 second = 0, third = 0;
        for (i64 at = 0; at < STRIPE; at += 8) {
            first = __builtin_ia32_crc32di(first, little64(data + at));
            second = __builtin_ia32_crc32di(second, little64(data + at + STRIPE));
            third = __builtin_ia32_crc32di(third, little64(data + at + 2 * STRIPE));
        }
        first = product_of((u32)first, lower_power[STRIPE_POWER + 1])
                ^ product_of((u32)second, lower_power[STRIPE_POWER]) ^ third;
    }
    for (; size >= 8; data += 8, size -= 8) first = __builtin_ia32_crc32di(first, little64(data));
    crc = (u32)first;
    for (; size > 0; data++, size--) crc = __builtin_ia32_crc32qi(crc, *data);
    return crc;
}

BY_INSTRUCTION static u32 shifted_by_instruction(u32 crc, i64 bytes) {
    for (int k = 0; bytes > 0 && k < POWERS; k++, bytes >>= 1)
        if (bytes & 1) crc = product_of(crc, lower_power[k]);
    return crc;
}
#endif

EXPORT void twinlog_prepare(void) {
    for (u32 n = 0; n < 256; n++) {
        u32 crc = n;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        crc_table[0][n] = crc;
    }
    for (u32 n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            crc_table[k][n] = crc_table[k - 1][n] >> 8 ^ crc_table[0][crc_table[k - 1][n] & 0xFF];
    power[0] = 1u << (31 - 8);
    for (int k = 1; k < POWERS; k++) power[k] = times(power[k - 1], power[k - 1]);
#if HAS_INSTRUCTIONS
    for (int k = 0; k < POWERS; k++) {
        lower_power[k] = power[k];
        for (int n = 0; n < 33; n++) { /* divided by x */
            u32 value = lower_power[k];
            lower_power[k] = value >> 31 ? (value ^ POLYNOMIAL) << 1 | 1 : value << 1;
        }
    }
    has_instructions = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
#endif
}

/* Returns the register after these bytes, if it was `crc` before them. Its first value is
 * CRC_BEGIN, and the complement of its last value is the CRC. */
static u32 crc_after(const u8 *data, i64 size, u32 crc) {
#if HAS_INSTRUCTIONS
    if (has_instructions) return crc_by_instruction(data, size, crc);
#endif
    for (; size >= 8; data += 8, size -= 8) {
        u64 eight = little64(data) ^ crc;
        crc = 0;
        for (int k = 0; k < 8; k++) crc ^= crc_table[7 - k][eight >> (8 * k) & 0xFF];
    }
    for (; size > 0; data++, size--) crc = crc >> 8 ^ crc_table[0][(crc ^ *data) & 0xFF];
    return crc;
}

static u32 crc32c(const u8 *data, i64 size) { return ~crc_after(data, size, CRC_BEGIN); }

/* Returns the difference of two registers after the same bytes, if it was `crc` before. */
static u32 shifted(u32 crc, i64 bytes) {
#if HAS_INSTRUCTIONS
    if (has_instructions) return shifted_by_instruction(crc, bytes);
#endif
    for (int k = 0; bytes > 0 && k < POWERS; k++, bytes >>= 1)
        if (bytes & 1) crc = times(crc, power[k]);
    return crc;
}

/* ---- one record ---- */

struct record {
    i64 time_delta, delta, rest, key, key_size, value, value_size, headers, end;
};

static inline int read_bytes(const u8 *data, i64 *position, i64 end, i64 *at, i64 *size) {
    if (!read32(data, position, end, size)) return 0;
    *at = *position;
    if (*size > end - *position) return 0;
    if (*size > 0) *position += *size;
    return 1;
}

struct header {
    i64 key, key_size, value, value_size;
};

/* Reads the header at *position, whose value may be null, but not its key. */
static inline int read_header(const u8 *data, i64 *position, i64 end, struct header *one) {
    if (!read_bytes(data, position, end, &one->key, &one->key_size) || one->key_size < 0) return 0;
    return read_bytes(data, position, end, &one->value, &one->value_size);
}

/* Reads the record at *position and moves *position after it; returns 0 if it is not a record. */
static inline int read_record(const u8 *data, i64 *position, i64 size, struct record *one) {
    i64 at = *position, length, count;
    struct header header;
    if (!read32(data, &at, size, &length) || length < 0 || length > size - at) return 0;
    i64 end = at + length;
    if (at >= end) return 0;
    at++; /* attributes: none is defined */
    if (!read_int(data, &at, end, 10, &one->time_delta)) return 0;
    if (!read32(data, &at, end, &one->delta)) return 0;
    one->rest = at;
    if (!read_bytes(data, &at, end, &one->key, &one->key_size)) return 0;
    if (!read_bytes(data, &at, end, &one->value, &one->value_size)) return 0;
    one->headers = at;
    if (!read32(data, &at, end, &count) || count < 0 || count > end - at) return 0;
    for (; count > 0; count--)
        if (!read_header(data, &at, end, &header)) return 0;
    if (at != end) return 0;
    one->end = end;
    *position = end;
    return 1;
}

/* Writes a row with these deltas; the caller has checked that MOST_FRONT and the rest fit. */
static inline u8 *write_record(u8 *out, const u8 *data, i64 rest, i64 end, i64 time_delta, i64 delta) {
    out = write_int(out, 1 + size_of(time_delta) + size_of(delta) + (end - rest));
    *out++ = 0;
    out = write_int(out, time_delta);
    out = write_int(out, delta);
    copy(out, data + rest, end - rest);
    return out + (end - rest);
}

/* ---- a payload becomes a table ---- */

/* Scans at most `most` records from state[POSITION] on; returns their number, or BAD with the state
 * unchanged. */
EXPORT i64 twinlog_scan(const u8 *data, i64 size, i64 *state, i64 most, i64 *table, i64 stride) {
    i64 position = state[POSITION], left = state[LEFT], last_delta = state[LAST_DELTA], rows = 0;
    struct record one;
    if (position < 0 || position > size || most > stride) return BAD;
    for (; left > 0 && rows < most; left--, rows++) {
        if (!read_record(data, &position, size, &one)) return BAD;
        if (one.delta <= last_delta || one.delta > state[MOST_DELTA]) return BAD;
        last_delta = one.delta;
        i64 *row = table + rows;
        row[OFFSET * stride] = (i64)((u64)state[BASE_OFFSET] + (u64)one.delta);
        row[TIMESTAMP * stride] =
            state[HAS_TIME] ? state[TIME] : (i64)((u64)state[BASE_TIME] + (u64)one.time_delta);
        row[REST * stride] = one.rest;
        row[KEY * stride] = one.key;
        row[KEY_SIZE * stride] = one.key_size;
        row[VALUE * stride] = one.value;
        row[VALUE_SIZE * stride] = one.value_size;
        row[HEADERS * stride] = one.headers;
        row[END * stride] = one.end;
    }
    state[POSITION] = position;
    state[LEFT] = left;
    state[LAST_DELTA] = last_delta;
    return rows;
}

/* ---- rows of a table become a payload ---- */

/* Returns the payload size of the `count` rows in `picked`, where the first of them is record
 * `number` of a batch that begins at timestamp `base`; also their least and greatest timestamp. */
EXPORT i64 twinlog_measure(const i64 *table, i64 stride, const i64 *picked, i64 count, i64 number,
                           i64 base, i64 *times) {
    i64 total = 0, least = INT64_MAX, most = INT64_MIN;
    for (i64 n = 0; n < count; n++) {
        const i64 *row = table + picked[n];
        i64 time = row[TIMESTAMP * stride];
        if (time < least) least = time;
        if (time > most) most = time;
        i64 body = 1 + size_of((i64)((u64)time - (u64)base)) + size_of(number + n)
                   + (row[END * stride] - row[REST * stride]);
        total += size_of(body) + body;
    }
    times[0] = least;
    times[1] = most;
    return total;
}

/* Writes these rows as the records of a dense batch, as `twinlog_measure` has measured it; returns
 * the bytes written, or BAD without room. */
EXPORT i64 twinlog_rebuild(const u8 *data, i64 size, const i64 *table, i64 stride,
                           const i64 *picked, i64 count, i64 number, i64 base, u8 *out, i64 room) {
    u8 *at = out;
    for (i64 n = 0; n < count; n++) {
        const i64 *row = table + picked[n];
        i64 rest = row[REST * stride], end = row[END * stride];
        if (rest < 0 || end < rest || end > size) return BAD;
        i64 delta = (i64)((u64)row[TIMESTAMP * stride] - (u64)base);
        i64 body = 1 + size_of(delta) + size_of(number + n) + (end - rest);
        if (size_of(body) + body > room - (at - out)) return BAD;
        at = write_record(at, data, rest, end, delta, number + n);
    }
    return at - out;
}

/* Finds the rows whose offset does not follow the previous row's; returns their number. */
EXPORT i64 twinlog_breaks(const i64 *offsets, const i64 *picked, i64 count, i64 *breaks) {
    i64 found = 0;
    for (i64 n = 1; n < count; n++)
        if (offsets[picked[n]] - 1 != offsets[picked[n - 1]]) breaks[found++] = n;
    return found;
}

/* ---- partitions of keys ---- */

static u32 murmur2(const u8 *data, i64 size) {
    const u32 m = 0x5BD1E995u;
    u32 value = 0x9747B28Cu ^ (u32)size;
    for (; size >= 4; data += 4, size -= 4) {
        u32 part = little32(data) * m;
        value = value * m ^ (part ^ part >> 24) * m;
    }
    if (size > 0) {
        for (i64 n = 0; n < size; n++) value ^= (u32)data[n] << (8 * n);
        value *= m;
    }
    value = (value ^ value >> 13) * m;
    return value ^ value >> 15;
}

/* Writes the rows in `picked` to `placed`, which has room for as many, by partition and in order;
 * counts[p + 1] is the end of partition p, and counts[0] is 0. */
EXPORT i64 twinlog_place(const u8 *data, i64 size, const i64 *table, i64 stride, const i64 *picked,
                         i64 count, i64 partitions, i64 *where, i64 *placed, i64 *counts) {
    for (i64 p = 0; p <= partitions; p++) counts[p] = 0;
    for (i64 n = 0; n < count; n++) {
        const i64 *row = table + picked[n];
        i64 key = row[KEY * stride], key_size = row[KEY_SIZE * stride];
        u32 hash;
        if (key_size >= 0) {
            if (key < 0 || key > size || key_size > size - key) return BAD;
            hash = murmur2(data + key, key_size);
        } else {
            u8 offset[8];
            for (int b = 0; b < 8; b++) offset[b] = (u8)((u64)row[OFFSET * stride] >> (56 - 8 * b));
            hash = murmur2(offset, 8);
        }
        where[n] = (i64)(hash & 0x7FFFFFFFu) % partitions;
        counts[where[n] + 1]++;
    }
    for (i64 p = 0; p < partitions; p++) counts[p + 1] += counts[p];
    for (i64 n = count - 1; n >= 0; n--) placed[--counts[where[n] + 1]] = picked[n];
    /* each count is now the begin of its partition, which is the end of the previous partition */
    for (i64 p = 0; p < partitions; p++) counts[p] = counts[p + 1];
    counts[partitions] = count;
    return count;
}

/* ---- columns of bytes ---- */

/* Copies the bytes of one column's rows one after another. Sets the end of each row, and a bit for
 * each row that is not null, as in Arrow; returns the number of nulls, or BAD without room. */
EXPORT i64 twinlog_gather(const u8 *data, i64 size, const i64 *from, const i64 *sizes, i64 count,
                          u8 *out, i64 room, int32_t *ends, u8 *present) {
    i64 filled = 0, nulls = 0;
    ends[0] = 0;
    for (i64 n = 0; n < count; n++) {
        if (sizes[n] < 0) {
            nulls++;
        } else {
            if (from[n] < 0 || from[n] > size || sizes[n] > size - from[n]) return BAD;
            if (sizes[n] > room - filled) return BAD;
            copy(out + filled, data + from[n], sizes[n]);
            filled += sizes[n];
            present[n >> 3] |= (u8)(1u << (n & 7));
        }
        ends[n + 1] = (int32_t)filled;
    }
    return nulls;
}

/* ---- columns become a table ---- */

struct strings {
    const u8 *data;
    i64 size;
    const i64 *starts, *sizes;
};

/* Finds row n of a column; a negative size means null. Returns 0 if it is outside of the data. */
static inline int find_bytes(const struct strings *from, i64 n, i64 *start, i64 *size) {
    *start = from->starts[n];
    *size = from->sizes[n];
    return *size <= 0 || (*start >= 0 && *start <= from->size && *size <= from->size - *start);
}

/* Builds records with the offsets 0, 1, ... from rows: the table, and its bytes in `out`. Headers
 * are copied unchanged. Returns the bytes written, or BAD without room or if a column is outside of
 * its data. */
EXPORT i64 twinlog_pack(const u8 *keys, i64 keys_size, const i64 *key_at, const i64 *key_sizes,
                        const u8 *values, i64 values_size, const i64 *value_at,
                        const i64 *value_sizes, const u8 *headers, i64 headers_size,
                        const i64 *header_at, const i64 *header_sizes, const i64 *times, i64 count,
                        u8 *out, i64 room, i64 *table) {
    const struct strings of_key = {keys, keys_size, key_at, key_sizes};
    const struct strings of_value = {values, values_size, value_at, value_sizes};
    const struct strings of_headers = {headers, headers_size, header_at, header_sizes};
    u8 *at = out;
    for (i64 n = 0; n < count; n++) {
        i64 key, key_size, value, value_size, header, header_size;
        if (!find_bytes(&of_key, n, &key, &key_size)) return BAD;
        if (!find_bytes(&of_value, n, &value, &value_size)) return BAD;
        if (!find_bytes(&of_headers, n, &header, &header_size)) return BAD;
        i64 key_bytes = key_size > 0 ? key_size : 0, value_bytes = value_size > 0 ? value_size : 0;
        i64 header_bytes = header_size > 0 ? header_size : 0, left = room - (at - out);
        if (left < 5 + 5 + 1 || key_bytes > left - 11) return BAD;
        if (value_bytes > left - 11 - key_bytes) return BAD;
        if (header_bytes > left - 11 - key_bytes - value_bytes) return BAD;
        i64 *row = table + n;
        row[OFFSET * count] = n;
        row[TIMESTAMP * count] = times[n];
        row[REST * count] = at - out;
        at = write_int(at, key_size < 0 ? -1 : key_size);
        row[KEY * count] = at - out;
        row[KEY_SIZE * count] = key_size < 0 ? -1 : key_size;
        copy(at, keys + key, key_bytes);
        at = write_int(at + key_bytes, value_size < 0 ? -1 : value_size);
        row[VALUE * count] = at - out;
        row[VALUE_SIZE * count] = value_size < 0 ? -1 : value_size;
        copy(at, values + value, value_bytes);
        at += value_bytes;
        row[HEADERS * count] = at - out;
        if (header_bytes) copy(at, headers + header, header_bytes);
        else *at = 0; /* no headers */
        at += header_bytes ? header_bytes : 1;
        row[END * count] = at - out;
    }
    return at - out;
}

/* ---- headers of records become columns, and columns headers ---- */

/* totals over the headers of some records */
enum { HEADER_COUNT, KEY_BYTES, VALUE_BYTES, ROWS_WITHOUT, NULL_VALUES };

/* Returns 1 if the text is UTF-8 without surrogates, as Arrow and Python require, else 0. */
static int is_text(const u8 *text, i64 size) {
    for (i64 n = 0; n < size;) {
        u8 first = text[n], low = 0x80, high = 0xBF;
        i64 more;
        if (first < 0x80) {
            n++;
            continue;
        }
        if (first >= 0xC2 && first <= 0xDF) more = 1;
        else if (first >= 0xE0 && first <= 0xEF) more = 2;
        else if (first >= 0xF0 && first <= 0xF4) more = 3;
        else return 0;
        if (more > size - 1 - n) return 0;
        if (first == 0xE0) low = 0xA0;
        if (first == 0xED) high = 0x9F;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F;
        if (text[n + 1] < low || text[n + 1] > high) return 0;
        for (i64 k = 2; k <= more; k++)
            if ((text[n + k] & 0xC0) != 0x80) return 0;
        n += 1 + more;
    }
    return 1;
}

/* Finds the headers of row n and moves *at after their count; returns 0 if they are invalid. */
static inline int read_count(const u8 *data, i64 size, i64 start, i64 end, i64 *at, i64 *count) {
    if (start < 0 || start > end || end > size) return 0;
    *at = start;
    return read32(data, at, end, count) && *count >= 0 && *count <= end - *at;
}

/* Measures the headers [starts[n], ends[n]) of rows; BAD if they are invalid, a key is not UTF-8,
 * or they do not fit into an Arrow column of 32 bits. */
EXPORT i64 twinlog_measure_headers(const u8 *data, i64 size, const i64 *starts, const i64 *ends,
                                   i64 rows, i64 *found) {
    i64 headers = 0, keys = 0, values = 0, without = 0, nulls = 0;
    for (i64 n = 0; n < rows; n++) {
        i64 at, count;
        struct header one;
        if (!read_count(data, size, starts[n], ends[n], &at, &count)) return BAD;
        if (!count) without++;
        headers += count;
        for (; count > 0; count--) {
            if (!read_header(data, &at, ends[n], &one)) return BAD;
            if (!is_text(data + one.key, one.key_size)) return BAD;
            keys += one.key_size;
            if (one.value_size < 0) nulls++;
            else values += one.value_size;
        }
        if (at != ends[n]) return BAD;
        if (headers > INT32_MAX || keys > INT32_MAX || values > INT32_MAX) return BAD;
    }
    found[HEADER_COUNT] = headers;
    found[KEY_BYTES] = keys;
    found[VALUE_BYTES] = values;
    found[ROWS_WITHOUT] = without;
    found[NULL_VALUES] = nulls;
    return rows;
}

/* Unpacks these headers to the buffers of an Arrow column: the end of each row's list and which
 * rows have one, the end of each key, the keys, and the same for the values. `room` is the result
 * of measuring. */
EXPORT i64 twinlog_unpack_headers(const u8 *data, i64 size, const i64 *starts, const i64 *ends,
                                  i64 rows, const i64 *room, int32_t *list_ends, u8 *has_list,
                                  int32_t *key_ends, u8 *keys, int32_t *value_ends, u8 *has_value,
                                  u8 *values) {
    i64 header = 0, key_at = 0, value_at = 0;
    list_ends[0] = key_ends[0] = value_ends[0] = 0;
    for (i64 n = 0; n < rows; n++) {
        i64 at, count;
        struct header one;
        if (!read_count(data, size, starts[n], ends[n], &at, &count)) return BAD;
        if (count > room[HEADER_COUNT] - header) return BAD;
        if (count) has_list[n >> 3] |= (u8)(1u << (n & 7));
        for (; count > 0; count--, header++) {
            if (!read_header(data, &at, ends[n], &one)) return BAD;
            if (one.key_size > room[KEY_BYTES] - key_at) return BAD;
            if (one.value_size > room[VALUE_BYTES] - value_at) return BAD;
            copy(keys + key_at, data + one.key, one.key_size);
            key_at += one.key_size;
            if (one.value_size >= 0) {
                copy(values + value_at, data + one.value, one.value_size);
                value_at += one.value_size;
                has_value[header >> 3] |= (u8)(1u << (header & 7));
            }
            key_ends[header + 1] = (int32_t)key_at;
            value_ends[header + 1] = (int32_t)value_at;
        }
        list_ends[n + 1] = (int32_t)header;
    }
    return header;
}

/* Encodes the headers of records, as the inverse of unpacking; row n has counts[n] of them, and
 * size 0 means none. Returns the bytes written, or BAD without room, if a key is null, or if a
 * column is outside of its data. */
EXPORT i64 twinlog_pack_headers(const u8 *keys, i64 keys_size, const i64 *key_at,
                                const i64 *key_sizes, const u8 *values, i64 values_size,
                                const i64 *value_at, const i64 *value_sizes, i64 headers,
                                const i64 *counts, i64 rows, u8 *out, i64 room, i64 *starts,
                                i64 *sizes) {
    const struct strings of_key = {keys, keys_size, key_at, key_sizes};
    const struct strings of_value = {values, values_size, value_at, value_sizes};
    i64 header = 0, key, key_size, value, value_size;
    u8 *at = out;
    for (i64 n = 0; n < rows; n++) {
        starts[n] = at - out;
        if (counts[n] < 0 || counts[n] > headers - header) return BAD;
        if (counts[n]) {
            if (room - (at - out) < 5) return BAD;
            at = write_int(at, counts[n]);
        }
        for (i64 end = header + counts[n]; header < end; header++) {
            if (!find_bytes(&of_key, header, &key, &key_size) || key_size < 0) return BAD;
            if (!find_bytes(&of_value, header, &value, &value_size)) return BAD;
            i64 value_bytes = value_size > 0 ? value_size : 0, left = room - (at - out);
            if (left < 5 + 5 || key_size > left - 10 || value_bytes > left - 10 - key_size) return BAD;
            at = write_int(at, key_size);
            copy(at, keys + key, key_size);
            at = write_int(at + key_size, value_size < 0 ? -1 : value_size);
            copy(at, values + value, value_bytes);
            at += value_bytes;
        }
        sizes[n] = at - out - starts[n];
    }
    return header == headers ? at - out : BAD;
}

/* ---- lz4 ---- */

#define LZ4_MAGIC 0x184D2204u
/* bits of the first byte of a frame's descriptor: version 1, then what is optional */
#define LZ4_VERSION 0x40
#define LZ4_INDEPENDENT 0x20
#define LZ4_BLOCK_SUMS 0x10
#define LZ4_SIZED 0x08
#define LZ4_SUMMED 0x04
#define LZ4_UNKNOWN 0xC3 /* not supported: other versions, a dictionary */
#define LZ4_STORED 0x80000000u

#define PRIME1 2654435761u
#define PRIME2 2246822519u
#define PRIME3 3266489917u
#define PRIME4 668265263u
#define PRIME5 374761393u

static inline u32 turned(u32 value, int bits) { return value << bits | value >> (32 - bits); }

static u32 xxh32(const u8 *at, i64 size) {
    const u8 *end = at + size;
    u32 lane[4] = {PRIME1 + PRIME2, PRIME2, 0, 0u - PRIME1}, sum = PRIME5;
    if (size >= 16) {
        for (; end - at >= 16; at += 16)
            for (int n = 0; n < 4; n++)
                lane[n] = turned(lane[n] + little32(at + 4 * n) * PRIME2, 13) * PRIME1;
        sum = turned(lane[0], 1) + turned(lane[1], 7) + turned(lane[2], 12) + turned(lane[3], 18);
    }
    sum += (u32)size;
    for (; end - at >= 4; at += 4) sum = turned(sum + little32(at) * PRIME3, 17) * PRIME4;
    for (; at < end; at++) sum = turned(sum + *at * PRIME5, 11) * PRIME1;
    sum = (sum ^ sum >> 15) * PRIME2;
    sum = (sum ^ sum >> 13) * PRIME3;
    return sum ^ sum >> 16;
}

/* Adds the further bytes of a length if its four bits are all set. */
static inline int read_length(const u8 *in, i64 *at, i64 end, i64 *length) {
    u8 byte = 255;
    while (byte == 255) {
        if (*at >= end) return 0;
        byte = in[(*at)++];
        *length += byte;
    }
    return 1;
}

/* Decompresses a block into out[filled, room), where matches may copy from `least` on. Returns what
 * is filled then, or BAD. It rejects what the format's own library rejects: numbers too close to
 * the end of the block. */
static i64 unpack_lz4_block(const u8 *in, i64 size, u8 *out, i64 least, i64 filled, i64 room) {
    for (i64 at = 0; at < size;) {
        u8 token = in[at++];
        i64 literals = token >> 4, match = token & 15;
        if (literals == 15 && !read_length(in, &at, size - 15, &literals)) return BAD;
        if (literals > size - at || literals > room - filled) return BAD;
        copy(out + filled, in + at, literals);
        at += literals, filled += literals;
        if (at == size) return filled; /* the last sequence has no match */
        if (size - at < 8) return BAD;
        i64 back = in[at] | in[at + 1] << 8;
        at += 2;
        if (match == 15 && !read_length(in, &at, size - 4, &match)) return BAD;
        match += 4;
        if (back < 1 || back > filled - least || match > room - filled) return BAD;
        if (back >= match) copy(out + filled, out + filled - back, match);
        else
            for (i64 n = filled; n < filled + match; n++) out[n] = out[n - back];
        filled += match;
    }
    return BAD;
}

/* Decompresses a frame. Returns the size, or BAD if it is damaged, has a dictionary, or needs more
 * room. */
static i64 unpack_lz4(const u8 *in, i64 size, u8 *out, i64 room) {
    if (size < 7 || little32(in) != LZ4_MAGIC) return BAD;
    u8 flags = in[4], class = in[5] >> 4;
    i64 at = flags & LZ4_SIZED ? 14 : 6, filled = 0;
    if ((flags & LZ4_UNKNOWN) != LZ4_VERSION || in[5] & 0x8F || class < 4) return BAD;
    if (size <= at || in[at] != (xxh32(in + 4, at - 4) >> 8 & 0xFF)) return BAD;
    i64 most = (i64)1 << (2 * class + 8), after = flags & LZ4_BLOCK_SUMS ? 4 : 0;
    for (at++;;) {
        if (size - at < 4) return BAD;
        u32 block = little32(in + at);
        i64 length = block & ~LZ4_STORED, begin = filled;
        at += 4;
        if (!block) break;
        if (length > most || length + after > size - at) return BAD;
        if (after && little32(in + at + length) != xxh32(in + at, length)) return BAD;
        if (block & LZ4_STORED) {
            if (length > room - filled) return BAD;
            copy(out + filled, in + at, length);
            filled += length;
        } else {
            i64 least = flags & LZ4_INDEPENDENT ? begin : 0;
            filled = unpack_lz4_block(in + at, length, out, least, filled, room);
            if (filled == BAD || filled - begin > most) return BAD;
        }
        at += length + after;
    }
    if (flags & LZ4_SIZED && little64(in + 6) != (u64)filled) return BAD;
    if (!(flags & LZ4_SUMMED)) return at == size ? filled : BAD;
    return size - at == 4 && little32(in + at) == xxh32(out, filled) ? filled : BAD;
}

/* ---- small batches become one ---- */

#define HEADER_BYTES 61
#define CODEC_BITS 0x07
#define LOG_APPEND_TIME 0x08
#define CONTROL 0x20
#define LZ4 3
/* inputs of a join, followed by its results */
enum { AT, NEXT_OFFSET, END_OFFSET, FEW, MOST_RECORDS, IS_CHECKED, CODEC,
       BATCHES, RECORDS, EPOCH, BASE, RECORD_TIME, BATCH_TIME, OLDEST };

/* Joins consecutive batches from state[AT] on that can be sent unchanged (magic 2, state[CODEC],
 * dense, CreateTime, correct CRC, one leader epoch) to one uncompressed payload of at most `room`
 * bytes; returns the payload's size. If they are lz4, the only codec here, the `room` bytes of
 * `out` after the payload's room are used to decompress. */
EXPORT i64 twinlog_join(const u8 *buffer, i64 size, i64 *state, u8 *out, i64 room) {
    i64 at = state[AT], next = state[NEXT_OFFSET], records = 0, batches = 0, filled = 0;
    i64 epoch = 0, base = 0, record_time = 0, batch_time = 0, oldest = 0;
    const u8 compared = CODEC_BITS | LOG_APPEND_TIME | CONTROL;
    struct record one;
    if (at < 0 || (state[CODEC] && state[CODEC] != LZ4)) return BAD;
    while (size - at >= HEADER_BYTES) {
        const u8 *head = buffer + at;
        i64 length = (int32_t)big32(head + 8) + (i64)12;
        i64 offset = (i64)big64(head), count = (int32_t)big32(head + 57);
        if (head[16] != 2 || length < HEADER_BYTES || length > size - at) break;
        if ((head[22] & compared) != state[CODEC] || count < 1 || count > state[FEW]) break;
        if (offset != next || offset >= state[END_OFFSET] || offset > INT64_MAX - count) break;
        if ((i64)(int32_t)big32(head + 23) + 1 != count) break;
        if (count > state[MOST_RECORDS] - records) break;
        if (batches && (int32_t)big32(head + 12) != epoch) break;
        if (!state[IS_CHECKED] && big32(head + 17) != crc32c(head + 21, length - 21)) break;
        const u8 *payload = head;
        i64 position = HEADER_BYTES, end = length, full = filled, latest = record_time, n = 0;
        if (state[CODEC]) {
            payload = out + room, position = 0;
            end = unpack_lz4(head + HEADER_BYTES, length - HEADER_BYTES, out + room, room);
            if (end == BAD) break;
        }
        u64 base_time = big64(head + 27);
        i64 begin = base;
        for (; n < count; n++) {
            if (!read_record(payload, &position, end, &one) || one.delta != n) break;
            i64 time = (i64)(base_time + (u64)one.time_delta);
            if (records + n == 0) begin = latest = time;
            i64 delta = (i64)((u64)time - (u64)begin);
            i64 body = 1 + size_of(delta) + size_of(records + n) + (one.end - one.rest);
            if (size_of(body) + body > room - full) break;
            full = write_record(out + full, payload, one.rest, one.end, delta, records + n) - out;
            if (time > latest) latest = time;
        }
        if (n < count || position != end) break;
        i64 stamp = (i64)big64(head + 35);
        if (!batches) epoch = (int32_t)big32(head + 12);
        if (!batches || stamp > batch_time) batch_time = stamp;
        if (!batches || stamp < oldest) oldest = stamp;
        filled = full, record_time = latest, base = begin;
        records += count, batches++, at += length, next += count;
    }
    state[AT] = at;
    state[NEXT_OFFSET] = next;
    state[BATCHES] = batches;
    state[RECORDS] = records;
    state[EPOCH] = epoch;
    state[BASE] = base;
    state[RECORD_TIME] = record_time;
    state[BATCH_TIME] = batch_time;
    state[OLDEST] = oldest;
    return filled;
}

/* ---- batches become this producer's ---- */

/* numbers of a `rewrite`; the first three are also results */
enum { REWRITE_AT, REWRITE_NEXT, REWRITE_EPOCH, REWRITE_BEGINS, REWRITE_END, REWRITE_LIMIT, REWRITE_FEW,
       REWRITE_CODECS, REWRITE_PRODUCER, REWRITE_SEQUENCE, REWRITE_NUMBERS };
/* numbers of a row; the rows follow after REWRITE_NUMBERS */
enum { ROW_AT, ROW_LENGTH, ROW_OFFSET, ROW_COUNT, ROW_BASE_TIME, ROW_MOST_TIME, ROW_EPOCH,
       ROW_MARK, ROW_NUMBERS };

#define SEQUENCE_MASK 0x7FFFFFFF
#define CRC_FROM 21
#define KEPT_ATTRIBUTES (0xFF & ~(0x10 | 0x40)) /* transactional, delete horizon */

#define NO_MARK (-1)

/* `wire.records.fingerprint` of the first record of an uncompressed batch, or BAD. */
static i64 fingerprint_of(const u8 *head, i64 length) {
    i64 position = HEADER_BYTES;
    struct record one;
    u8 numbers[12];
    if (!read_record(head, &position, length, &one) || one.delta < 0) return BAD;
    if (one.delta > (int32_t)big32(head + 23)) return BAD;
    put64(numbers, big64(head + 27) + (u64)one.time_delta);
    put32(numbers + 8, one.key_size < 0 ? UINT32_MAX : (u32)one.key_size);
    u32 crc = crc_after(head + one.key, one.key_size, crc_after(numbers, 12, CRC_BEGIN));
    put32(numbers, one.value_size < 0 ? UINT32_MAX : (u32)one.value_size);
    return (u32)~crc_after(head + one.value, one.value_size, crc_after(numbers, 4, crc));
}

/* Turns a checked batch into one of this producer. The payload is not read again: `after` is the
 * CRC register after it, and a change of the header changes that register in a known way. */
static void rewrite_one(u8 *head, i64 length, u32 front, u32 after, i64 producer, i64 sequence) {
    put64(head, 0);
    head[22] &= KEPT_ATTRIBUTES;
    put64(head + 43, (u64)producer);
    head[51] = head[52] = 0; /* producer epoch */
    put32(head + 53, (u32)sequence);
    u32 change = front ^ crc_after(head + CRC_FROM, HEADER_BYTES - CRC_FROM, CRC_BEGIN);
    put32(head + 17, ~(after ^ shifted(change, length - HEADER_BYTES)));
}

/* Rewrites at most `most` contiguous batches that need no other change, and writes a row for each;
 * returns their number. Skips control batches. A run begins after them, and the row of its first
 * batch gets a fingerprint. Stops before the first other batch, which is not changed. */
EXPORT i64 twinlog_rewrite(u8 *buffer, i64 size, i64 *state, i64 most) {
    i64 at = state[REWRITE_AT], next = state[REWRITE_NEXT], sequence = state[REWRITE_SEQUENCE], rows = 0;
    i64 *row = state + REWRITE_NUMBERS;
    i64 begins = state[REWRITE_BEGINS];
    if (at < 0 || sequence < 0 || sequence > SEQUENCE_MASK) return BAD;
    while (rows < most && size - at >= HEADER_BYTES) {
        u8 *head = buffer + at;
        i64 length = (int32_t)big32(head + 8) + (i64)12, left = size - at - length;
        i64 offset = (i64)big64(head), count = (int32_t)big32(head + 57);
        i64 dense = (i64)(int32_t)big32(head + 23) + 1, mark = NO_MARK;
        int is_control = head[22] & CONTROL, codec = head[22] & CODEC_BITS;
        if (head[16] != 2 || length < HEADER_BYTES || left < 0) break;
        if (count < 1 || (is_control ? count > dense : count != dense)) break;
        if (offset != next || offset >= state[REWRITE_END] || offset > INT64_MAX - dense) break;
        if (!is_control) {
            if (head[22] & LOG_APPEND_TIME || length > state[REWRITE_LIMIT]) break;
            if (!(state[REWRITE_CODECS] >> codec & 1) || (begins && codec)) break;
            if (count > (i64)SEQUENCE_MASK + 1 - sequence) break;
            if (count <= state[REWRITE_FEW] && left >= 8 && (i64)big64(head + length) == next + count)
                break; /* the batch and the next one may be joined */
        }
        u32 front = crc_after(head + CRC_FROM, HEADER_BYTES - CRC_FROM, CRC_BEGIN);
        u32 after = crc_after(head + HEADER_BYTES, length - HEADER_BYTES, front);
        if (big32(head + 17) != ~after) break;
        if (begins && !is_control && (mark = fingerprint_of(head, length)) == BAD) break;
        state[REWRITE_EPOCH] = (int32_t)big32(head + 12);
        if (!is_control) {
            row[ROW_AT] = at;
            row[ROW_LENGTH] = length;
            row[ROW_OFFSET] = offset;
            row[ROW_COUNT] = count;
            row[ROW_BASE_TIME] = (i64)big64(head + 27);
            row[ROW_MOST_TIME] = (i64)big64(head + 35);
            row[ROW_EPOCH] = state[REWRITE_EPOCH];
            row[ROW_MARK] = mark;
            rewrite_one(head, length, front, after, state[REWRITE_PRODUCER], sequence);
            sequence = (sequence + count) & SEQUENCE_MASK;
            rows++, row += ROW_NUMBERS;
        }
        begins = is_control;
        at += length, next += dense;
    }
    state[REWRITE_AT] = at;
    state[REWRITE_NEXT] = next;
    return rows;
}
