"""Ready-made transforms of records, and checks of transforms, over DataFrames of
`format("twinlog")`.

A transform is a function that takes a DataFrame with the columns of `format("twinlog")` (key,
value, headers, topic, partition, offset, timestamp, timestampType) and returns one. The helpers
here return such functions:

    from twinlog.transforms import drop, drop_json, mask_json, TOMBSTONE

    mask = mask_json("$.card.number", keep_last=4)
    orders = spark.readStream.format("twinlog").options(**options, includeHeaders="true").load()
    masked = orders.transform(mask).transform(drop_json("$.cvc"))

Read `json_fields` and `rows` (the helpers), `loading` (transforms of a configuration), `plan` (the
check that a transform is row by row), then `trial` (`twinlog transform try`). `application` runs
transforms for lanes (ADR 40). `rounds` has its jobs, `failing` finds records on which they fail,
and `memory` bounds the application's processes.
docs/transforms.md has recipes.
"""

from __future__ import annotations

from twinlog.transforms.json_fields import cast_json, drop_json, hash_json, mask_json
from twinlog.transforms.plan import check_plan
from twinlog.transforms.rows import (
    TOMBSTONE,
    Transform,
    chain,
    drop,
    drop_headers,
    has_header,
    json_is,
    keep,
    key_matches,
    rekey,
    route,
    set_header,
    sql,
)

__all__ = [
    "TOMBSTONE",
    "Transform",
    "cast_json",
    "chain",
    "check_plan",
    "drop",
    "drop_headers",
    "drop_json",
    "has_header",
    "hash_json",
    "json_is",
    "keep",
    "key_matches",
    "mask_json",
    "rekey",
    "route",
    "set_header",
    "sql",
]
