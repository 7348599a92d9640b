"""Loads the transforms in a configuration as functions, which imports the user's modules."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from functools import reduce

from pyspark.sql import SparkSession

from twinlog.config.flow.schema import FlowConfig
from twinlog.config.flow.transforms import TransformConfig
from twinlog.config.values.origin import refuse
from twinlog.errors import ConfigError
from twinlog.transforms.plan import FAILED, TransformPlan, check_plan, record_columns
from twinlog.transforms.rows import Transform, chain, sql
from twinlog.transforms.session import local_session


def load_transform(config: TransformConfig) -> Transform:
    """Return a transform as a function. Raises ConfigError if its module cannot be imported."""
    if config.sql:
        return sql(config.sql)
    module, _, name = config.function.partition(":")
    try:
        loaded: object = reduce(getattr, name.split("."), importlib.import_module(module))
    # the module may raise any exception, or end the process as a script does
    except (Exception, SystemExit) as error:
        what = f"{config.function} cannot be imported: {type(error).__name__}: {error}"
        todo = "install the module where this command runs, or set PYTHONPATH"
        raise refuse(config.origin, what, todo, code=FAILED) from error
    if not callable(loaded):
        what = f"{config.function} is not a function, but {type(loaded).__name__}"
        todo = "name a function of a DataFrame that returns a DataFrame"
        raise refuse(config.origin, what, todo, code=FAILED)
    function: Transform = loaded
    return function


def load_chain(configs: Iterable[TransformConfig]) -> Transform:
    """Return the transforms of one topic as one function. Each transform gets only the columns of
    records, as in its check.
    """
    return chain(*(step for config in configs for step in (load_transform(config), record_columns)))


def check_transform(spark: SparkSession, config: TransformConfig) -> TransformPlan:
    """Import and check one transform of a flow. The ConfigError that it may raise names the line of
    the configuration file.
    """
    function = load_transform(config)
    try:
        (plan,) = check_plan(spark, [function])
    except ConfigError as error:
        origin = config.origin
        raise ConfigError(
            error.what, code=error.code, file=origin.file, line=origin.line, key=origin.key
        ) from error
    if plan.routes:
        what = f"{config.name} sets the topic of records, but a flow copies a topic to one topic"
        todo = (
            "keep the column topic, and give each route a flow of its own with a filter "
            "(docs/transforms.md#routing), or use the function in a stream of your own"
        )
        raise refuse(config.origin, what, todo, code="TRANSFORMS_NOT_RUN")
    return plan


def check_flows(
    flows: Iterable[FlowConfig],
) -> Iterator[tuple[FlowConfig, TransformConfig, TransformPlan | ConfigError]]:
    """Check the transforms of these flows. Yield (flow, transform, plan or error) for each of them.
    Starts a Spark session.
    """
    with local_session("twinlog check") as spark:
        for flow in flows:
            for transform in flow.transforms.entries:
                try:
                    yield flow, transform, check_transform(spark, transform)
                except ConfigError as error:
                    yield flow, transform, error
