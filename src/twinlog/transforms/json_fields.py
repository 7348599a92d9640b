"""Transforms of JSON fields: mask, hash, remove, cast. They are native Spark expressions (VARIANT),
so executors run no Python.

A path is `$.card.number`, `$.items[*].card` (each element of an array) or `$['odd name'].x`. If a
path does not exist, the value is not changed. A JSON null stays null.

- A tombstone stays a tombstone.
- For a value that is not JSON, the transform fails with the record's topic, partition and offset. A
  transform that must hide data must not pass on values that it cannot read. `not_json="keep"`
  copies such values unchanged. These values count as not JSON: bytes that are not UTF-8, an object
  with a duplicate key, several JSON texts, and values above Spark's limit of a VARIANT (16 MiB in
  Spark 4.0).
- The result is a new JSON text with the same data. It has no blanks between tokens, keys of objects
  in alphabetical order, and `1.1` instead of `1.10`. Numbers with an exponent or more than 38
  digits become doubles.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from twinlog.errors import ConfigError
from twinlog.records.columns import VALUE
from twinlog.transforms.rows import Transform, failure

NotJson: TypeAlias = Literal["fail", "keep"]
Steps: TypeAlias = tuple[str | None, ...]
"""A parsed path. Each step is the name of a field, or None for all elements of an array."""
Leaf: TypeAlias = Callable[[Column], Column]

MASK: Final = "****"
_JSON: Final = "__twinlog_json"
"""Name of a temporary column with the parsed value."""
_OBJECT: Final = "map<string,variant>"
_ARRAY: Final = "array<variant>"
_STEP: Final = re.compile(r"\.([^.\[\]'\"*\s]+)|\['([^']+)'\]|(\[\*\])")
_BLOCK: Final = 64
"""Block size of SHA-256 in bytes, for HMAC."""


def mask_json(
    *paths: str, keep_last: int = 0, column: str = VALUE, not_json: NotJson = "fail"
) -> Transform:
    """Replace the values at these paths by `****`, followed by their last `keep_last` characters.

    Objects, arrays, and texts that are shorter than twice `keep_last` are replaced by `****` only.
    The result is always a text, even for a number.

    >>> mask = mask_json("$.card.number", "$.items[*].card", keep_last=4)
    """

    def masked(value: Column) -> Column:
        if not keep_last:
            return F.lit(MASK)
        content = F.try_variant_get(value, "$", "string")
        is_nested = F.coalesce(
            F.try_variant_get(value, "$", _OBJECT).isNotNull()
            | F.try_variant_get(value, "$", _ARRAY).isNotNull(),
            F.lit(False),
        )
        is_short = F.length(content) < 2 * keep_last
        kept = F.when(is_nested | is_short, "").otherwise(F.right(content, F.lit(keep_last)))
        return F.concat(F.lit(MASK), F.coalesce(kept, F.lit("")))

    return _edited(paths, masked, "mask_json", column, not_json)


def hash_json(
    *paths: str, key: str | bytes, column: str = VALUE, not_json: NotJson = "fail"
) -> Transform:
    """Replace the values at these paths by their HMAC-SHA256 as hexadecimal digits, so that equal
    values stay equal.

    Without the key, nobody can find a value by hashing all possible values. Read the key from the
    environment or a file. The key is part of Spark's plan, so users with access to the
    application's UI or event log can see it.

    >>> pseudonyms = hash_json("$.email", key=os.environ["PSEUDONYM_KEY"])
    """
    secret = key.encode() if isinstance(key, str) else key
    if not secret:
        raise ConfigError("hash_json: the key is empty; give a secret of at least 16 bytes")
    short = hashlib.sha256(secret).digest() if len(secret) > _BLOCK else secret
    block = short.ljust(_BLOCK, b"\0")
    outer, inner = (bytes(byte ^ pad for byte in block) for pad in (0x5C, 0x36))

    def hashed(value: Column) -> Column:
        content = F.try_variant_get(value, "$", "string").cast("binary")
        digest = F.unhex(F.sha2(F.concat(F.lit(inner), content), 256))
        return F.sha2(F.concat(F.lit(outer), digest), 256)

    return _edited(paths, hashed, "hash_json", column, not_json)


def cast_json(path: str, to: str, *, column: str = VALUE, not_json: NotJson = "fail") -> Transform:
    """Convert the value at a path to `string`, `bigint`, `double`, `boolean` or `decimal(p,s)`. The
    transform fails for a value that cannot be converted.

    >>> numbers = cast_json("$.amount", "decimal(12,2)")
    """
    return _edited(
        (path,), lambda value: F.variant_get(value, "$", to), "cast_json", column, not_json
    )


def drop_json(*paths: str, column: str = VALUE, not_json: NotJson = "fail") -> Transform:
    """Remove the fields at these paths.

    >>> slim = drop_json("$.cvc", "$.items[*].internal")
    """
    if any(path.rstrip().endswith("[*]") for path in paths):
        raise ConfigError(
            "drop_json: a path must end with a field, not with [*]; write the array's path"
        )
    return _edited(paths, None, "drop_json", column, not_json)


def _edited(
    paths: tuple[str, ...], leaf: Leaf | None, name: str, column: str, not_json: NotJson
) -> Transform:
    """Return a transform that applies `leaf` to the value at each path, or removes the field if
    `leaf` is None.
    """
    steps = [parse_path(path, name) for path in paths]
    if not steps:
        raise ConfigError(f"{name}: no path is given; write {name}('$.card')")
    if not_json not in ("fail", "keep"):
        raise ConfigError(f"{name}: not_json={not_json!r}; write fail or keep")

    def apply(rows: DataFrame) -> DataFrame:
        original = F.col(column)
        # parse the text within a JSON array, so that text after the first JSON value is an error;
        # Spark ignores text after the array, so a second element shows that the array ends here
        text = F.try_validate_utf8(original.cast("string"))
        parsed = F.try_parse_json(F.concat(F.lit("["), text, F.lit(",0]")))
        rows = rows.withColumn(_JSON, F.try_variant_get(parsed, "$", _ARRAY))
        rows = rows.withColumn(_JSON, F.when(F.size(_JSON) == 2, F.get(_JSON, 0)))
        # a new column for each path, because a nested expression would evaluate each path twice
        for path_steps in steps:
            rows = rows.withColumn(_JSON, edit(F.col(_JSON), path_steps, leaf))
        other = original if not_json == "keep" else failure(f"{column} is not JSON ({name})")
        written = (
            F.when(original.isNull(), None)
            .when(F.col(_JSON).isNull(), other.cast("binary"))
            .otherwise(F.to_json(_JSON).cast("binary"))
        )
        return rows.withColumn(column, written).drop(_JSON)

    return apply


def parse_path(path: str, name: str) -> Steps:
    """Return the steps of a path. Raises ConfigError if the path is invalid."""
    matches = [*_STEP.finditer(path, 1)]
    if not matches or path[:1] != "$" or "".join(match[0] for match in matches) != path[1:]:
        raise ConfigError(
            f"{name}: {path!r} is not a path; write $.card.number, $.items[*].card or $['odd name']"
        )
    return tuple(None if match[3] else match[1] or match[2] for match in matches)


def edit(value: Column, steps: Steps, leaf: Leaf | None) -> Column:
    """Return a VARIANT in which `leaf` is applied to the value at a path (None: the field is
    removed). A JSON null is not changed. If the path does not exist, `value` is returned.
    """
    if not steps:
        changed = value if leaf is None else leaf(value).cast("variant")
        return F.when(F.is_variant_null(value), value).otherwise(changed)
    first, rest = steps[0], steps[1:]
    if first is None:
        items = F.try_variant_get(value, "$", _ARRAY)
        return _rebuilt(F.transform(items, lambda item: edit(item, rest, leaf)), value)
    fields = F.try_variant_get(value, "$", _OBJECT)
    if leaf is None and not rest:
        return _rebuilt(F.map_filter(fields, lambda name, _: name != first), value)

    def of_field(name: Column, value: Column) -> Column:
        return F.when(name == first, edit(value, rest, leaf)).otherwise(value)

    return _rebuilt(F.transform_values(fields, of_field), value)


def _rebuilt(changed: Column, value: Column) -> Column:
    """Return `changed` as a VARIANT, or `value` if `changed` is NULL, because `value` is neither an
    object nor an array.
    """
    return F.coalesce(F.to_variant_object(changed), value)
