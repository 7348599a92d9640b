"""What `/metrics` serves beside the catalogue's defaults, as the keys `twinlog.metrics.*` and
`metric.names.formats` (KIP-1280) say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from twinlog import metrics
from twinlog.config.keys.process_keys import METRICS_LABELS, METRICS_PARTITIONS
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.types import to_boolean, to_list

_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TAKEN: Final = frozenset(label for metric in metrics.ALL for label in metric.labels)


class MetricNames(StrEnum):
    """Names of MirrorMaker 2's series."""

    LEGACY = "legacy"
    NEW = "new"
    """Those of Connect's plugins, with its tags: MirrorMaker 2 will have no others from 5.0 on."""


LEGACY_NAMES: Final = frozenset({MetricNames.LEGACY})


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesConfig:
    """Of a process."""

    labels: tuple[tuple[str, str], ...] = ()
    """Names and values that every series carries, in the order of the names."""
    has_partitions: bool = True
    """Whether single partitions have series."""
    names: Mapping[str, frozenset[MetricNames]] = field(default_factory=dict)
    """By flow; `legacy` where one is not in it."""


ALL_SERIES: Final = SeriesConfig()


def series_config(raw: Settings) -> SeriesConfig:
    """Raises ConfigError for a label that Prometheus does not take, or that a series has."""
    labels: dict[str, str] = {}
    if METRICS_LABELS in raw:
        setting = raw[METRICS_LABELS]
        for one in to_list(setting):
            name, equals, value = (part.strip() for part in one.partition("="))
            if not equals or not _NAME.fullmatch(name) or not value:
                raise refuse(
                    setting,
                    f"{one!r} is no label",
                    "write name=value, the name of letters, digits and _, as in namespace=kafka",
                )
            if name in _TAKEN or name in labels:
                why = "is given twice" if name in labels else "is a label of the series themselves"
                raise refuse(setting, f"{name} {why}", "take another name")
            labels[name] = value
    return SeriesConfig(
        labels=tuple(sorted(labels.items())),
        has_partitions=METRICS_PARTITIONS not in raw or to_boolean(raw[METRICS_PARTITIONS]),
    )


def metric_names(setting: Setting) -> frozenset[MetricNames]:
    """Raises ConfigError for what is none of them, and for none at all."""
    given = to_list(setting)
    known = [name.value for name in MetricNames]
    for one in given:
        if one not in known:
            raise refuse(setting, f"{one!r} is no format of names", "write legacy, new or both")
    if not given:
        raise refuse(setting, "no format of names is given", "write legacy, new or both")
    return frozenset(MetricNames(one) for one in given)
