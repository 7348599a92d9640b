"""Configuration of the series in `/metrics`: `twinlog.metrics.*` and `metric.names.formats`
(KIP-1280).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from twinlog import metrics
from twinlog.config.keys.key_table import METRICS_LABELS, METRICS_PARTITIONS
from twinlog.config.values.origin import Setting, Settings, refuse
from twinlog.config.values.types import to_boolean, to_list

_NAMES: Final = "write legacy, or new, or both as legacy, new"
_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TAKEN: Final = frozenset(label for metric in metrics.ALL for label in metric.labels)


class MetricNames(StrEnum):
    """Format of the names of MirrorMaker 2's metrics."""

    LEGACY = "legacy"
    NEW = "new"
    """Names and tags of Connect's plugin metrics, the only format in MirrorMaker 2 from 5.0 on."""


LEGACY_NAMES: Final = frozenset({MetricNames.LEGACY})


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesConfig:
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values of labels that every series gets, sorted by name."""
    has_partitions: bool = True
    """True if `/metrics` has series per partition."""
    names: Mapping[str, frozenset[MetricNames]] = field(default_factory=dict)
    """Formats of the names of MirrorMaker 2's metrics, by flow. Absent flows use `legacy`."""


ALL_SERIES: Final = SeriesConfig()


def series_config(raw: Settings) -> SeriesConfig:
    """Return the configuration of the series. Raises ConfigError for a label that is invalid in
    Prometheus or already used.
    """
    labels: dict[str, str] = {}
    if METRICS_LABELS in raw:
        setting = raw[METRICS_LABELS]
        for label in to_list(setting):
            name, equals, value = (part.strip() for part in label.partition("="))
            if not equals or not _NAME.fullmatch(name) or not value:
                raise refuse(
                    setting,
                    f"{label!r} is not a label",
                    "write name=value, with letters, digits and _ in the name, as in "
                    "namespace=kafka",
                )
            if name in _TAKEN or name in labels:
                why = "is given twice" if name in labels else "is already a label of a series"
                raise refuse(setting, f"{name} {why}", "use another name")
            labels[name] = value
    return SeriesConfig(
        labels=tuple(sorted(labels.items())),
        has_partitions=METRICS_PARTITIONS not in raw or to_boolean(raw[METRICS_PARTITIONS]),
    )


def metric_names(setting: Setting) -> frozenset[MetricNames]:
    """Parse the formats of metric names. Raises ConfigError if one is unknown, or none is given."""
    words = to_list(setting)
    known = [name.value for name in MetricNames]
    for word in words:
        if word not in known:
            raise refuse(setting, f"{word!r} is not a format of metric names", _NAMES)
    if not words:
        raise refuse(setting, "has no format of metric names", _NAMES)
    return frozenset(MetricNames(name) for name in words)
