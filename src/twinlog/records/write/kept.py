"""Recognises DataFrames whose tasks already have whole partitions, so that nothing is shuffled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from twinlog.records.columns import PARTITION, TOPIC

NARROW: Final = frozenset({"Project", "Filter", "SubqueryAlias", "View"})
"""Operators of a plan that leave each row in its task."""
SOURCES: Final = {"DataSourceV2Relation": "options", "StreamingRelationV2": "extraOptions"}
"""Leaves of a plan, of batches and streams, and the methods with a reader's options."""


def keeps_partitions(df: DataFrame, topic: str) -> bool:
    """Return whether rows keep the partition from which `format("twinlog")` read them. A task reads
    whole partitions, unless `minPartitions` splits them.

    `topic`: the topic of all rows, if an option names it; they must then be read from one topic.
    False if the plan is unknown, as over Spark Connect.
    """
    dataframe: Any = getattr(df, "_jdf", None)
    if dataframe is None:
        return False
    try:
        plan = dataframe.queryExecution().analyzed()
        kept = _attributes(plan)
        while plan.nodeName() in NARROW:
            plan = plan.children().head()
        return _is_kept(plan, kept, topic)
    except Py4JError:
        return False


def _is_kept(plan: Any, kept: Mapping[str, str], topic: str) -> bool:
    method = SOURCES.get(plan.getClass().getSimpleName())
    if method is None or plan.table().name() != "twinlog":
        return False
    read, options = _attributes(plan), getattr(plan, method)()
    topics = options.get("subscribe") or ","
    is_one_topic = "," not in topics if topic else kept.get(TOPIC, "") == read.get(TOPIC)
    return (
        is_one_topic
        and kept.get(PARTITION, "") == read.get(PARTITION)
        and not options.containsKey("minPartitions")
    )


def _attributes(plan: Any) -> dict[str, str]:
    output = plan.output()
    attributes = (output.apply(at) for at in range(output.size()))
    return {attribute.name(): attribute.exprId().toString() for attribute in attributes}
