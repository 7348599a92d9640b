"""Ready-made transforms of records in DataFrames of `format("twinlog")`, and checks of transforms.

A transform is a function from a DataFrame to a DataFrame, both with the columns of
`format("twinlog")`: key, value, headers, topic, partition, offset, timestamp, timestampType. The
helpers in this package return such functions:

    from twinlog.transforms import drop, drop_json, mask_json, TOMBSTONE

    mask = mask_json("$.card.number", keep_last=4)
    orders = spark.readStream.format("twinlog").options(**options, includeHeaders="true").load()
    masked = orders.transform(mask).transform(drop_json("$.cvc"))

Read `json_fields` and `rows` (the helpers), `loading` (transforms in a configuration), `plan` (the
check that a transform processes each record separately), then `trial` (`twinlog transform try`).
`application` runs transforms for lanes (ADR 40). `rounds` runs its Spark jobs, cancels late ones,
and finds records on which transforms fail. `memory` limits the memory of the application's
processes.
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
