"""Checks that a transform is row by row, that is, it converts each record to one record or none,
and independently of other records.

A mirror must get the same records if it transforms a part of a partition again. So the plan of a
transform must consist of operators in `ALLOWED`. It must also keep `partition` and `offset`, which
identify the record that a row comes from. The check uses Spark's analyzed plan for an empty
DataFrame. If the plan has an operator that is not in `ALLOWED`, the transform is rejected, and the
error names the first such operator. The Python functions of `mapInPandas` and `mapInArrow` are not
visible in a plan. These operators are accepted, but a plan with them is not proven to be row by
row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from twinlog.errors import ConfigError, EnvironmentMissing
from twinlog.records.columns import KEY, OFFSET, PARTITION, SPARK_TYPES, TOPIC, UPSTREAM, VALUE
from twinlog.transforms.rows import Transform

COLUMNS: Final = {name: kind for name, kind in SPARK_TYPES.items() if name != UPSTREAM}
"""Names and types of the columns of a record, which a transform gets and must return."""

_BYTES: Final = (KEY, VALUE)
"""Columns that a transform may also return as texts."""
_IDENTITY: Final = (PARTITION, OFFSET)

_OPAQUE: Final = frozenset({"MapInPandas", "MapInArrow"})
ALLOWED: Final = _OPAQUE | {"Project", "Filter", "SubqueryAlias", "View"}
"""Names of permitted operators, which process each row separately. The operator that reads the
records is also permitted.
"""

_NAMES: Final = {
    "Aggregate": "an aggregation",
    "Deduplicate": "dropDuplicates",
    "Distinct": "DISTINCT",
    "Generate": "explode",
    "GlobalLimit": "a limit",
    "Join": "a join",
    "LocalLimit": "a limit",
    "Repartition": "a repartitioning",
    "RepartitionByExpression": "a repartitioning",
    "Sort": "a sort",
    "Union": "a union",
    "Window": "a window function",
}
"""Names of operators for messages, as users know them."""

NOT_ROW_BY_ROW: Final = "TRANSFORM_NOT_ROW_BY_ROW"
WRONG_COLUMNS: Final = "TRANSFORM_COLUMNS"
FAILED: Final = "TRANSFORM_FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformPlan:
    """The result of the check of one transform."""

    columns: tuple[tuple[str, str], ...]
    """Names and types of the columns that the transform returns."""
    is_deterministic: bool
    """False if the plan has rand(), uuid(), now() or a similar function, so that a repeated
    transform returns different records.
    """
    is_proven: bool
    """False if the plan has mapInPandas or mapInArrow, so that it may depend on other records."""
    routes: bool = False
    """True if the transform sets the topic of records."""
    rekeys: bool = False
    """True if the transform sets the key of records."""

    def __str__(self) -> str:
        """Return the columns, and notes for users, in one line."""
        ignored = [name for name, _ in self.columns if name not in COLUMNS]
        notes = {
            f"not written: {', '.join(ignored)}": bool(ignored),
            "not deterministic": not self.is_deterministic,
            "mapInPandas and mapInArrow are not proven to be row by row": not self.is_proven,
            "sets the key, and records keep their partition (docs/transforms.md#new-keys)": (
                self.rekeys
            ),
        }
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        return "; ".join((columns, *(note for note, applies in notes.items() if applies)))


def check_plan(spark: SparkSession, transforms: Iterable[Transform]) -> tuple[TransformPlan, ...]:
    """Run each transform on an empty DataFrame, and check its columns and its plan.

    >>> check_plan(spark, [mask_json("$.card"), drop(TOMBSTONE)])

    Raises ConfigError: TRANSFORM_NOT_ROW_BY_ROW if an operator needs several rows, or if
    `partition` or `offset` is missing or changed; TRANSFORM_COLUMNS if columns are wrong;
    TRANSFORM_FAILED if the function raises an error.
    """
    return tuple(_checked(spark, transform) for transform in transforms)


def applied(transform: Transform, rows: DataFrame) -> DataFrame:
    """Apply a transform. Raises ConfigError if it fails, or if its result has wrong columns."""
    result = _called(transform, rows)
    _check_columns(result)
    return result


def _called(transform: Transform, rows: DataFrame) -> DataFrame:
    try:
        result: object = transform(rows)
    except Exception as error:
        raise _failed(f"{type(error).__name__}: {first_line(error)}") from error
    if not isinstance(result, DataFrame):
        raise _failed(f"it returned {type(result).__name__}, not a DataFrame")
    return result


def record_columns(rows: DataFrame) -> DataFrame:
    """Return a DataFrame with only the columns of records. Keys and values are cast to bytes."""
    return rows.select(*(_as_bytes(name) for name in COLUMNS))


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text. Spark's texts go on with a plan or a trace."""
    return str(error).strip().split("\n", maxsplit=1)[0]


def _as_bytes(name: str) -> Column:
    return F.col(name).cast("binary") if name in _BYTES else F.col(name)


def _checked(spark: SparkSession, transform: Transform) -> TransformPlan:
    empty = spark.createDataFrame([], ", ".join(f"{n} {kind}" for n, kind in COLUMNS.items()))
    result = _called(transform, empty)
    plan, source = _analyzed(result), _analyzed(empty)
    operators = [*_operators(plan)]
    _refuse_operators(operators, source)  # before columns, which an aggregation also lacks
    if _is_cached(result):
        what = "the transform caches records, so later records would not be read"
        raise _refusal(what, "omit cache()")
    _check_columns(result)
    result_ids, source_ids = _ids(plan), _ids(source)
    is_proven = not _OPAQUE & {operator.nodeName() for operator in operators}
    if is_proven:
        changed = [name for name in _IDENTITY if result_ids[name] != source_ids[name]]
        if changed:
            raise _refusal(
                f"the transform changes the column {changed[0]}, which identifies a row's record",
                "keep the columns partition and offset as they are",
            )
    return TransformPlan(
        columns=tuple((field.name, field.dataType.simpleString()) for field in result.schema),
        is_deterministic=bool(plan.deterministic()) and not _depends_on_time(spark, plan),
        is_proven=is_proven,
        routes=is_proven and result_ids[TOPIC] != source_ids[TOPIC],
        rekeys=is_proven and result_ids[KEY] != source_ids[KEY],
    )


def _check_columns(result: DataFrame) -> None:
    """Raise ConfigError unless the result has all columns of records. It may have more columns."""
    columns = [(field.name, field.dataType.simpleString()) for field in result.schema]
    names = [name for name, _ in columns]
    for name, wanted in COLUMNS.items():
        if names.count(name) != 1:
            found = f"{names.count(name)} columns" if name in names else "no column"
            what = f"the transform returns {found} {name}"
            if name in _IDENTITY:
                raise _refusal(what, "keep the columns partition and offset as they are")
            todo = "keep the column, or set it to NULL" if name not in names else "keep one of them"
            raise ConfigError(f"{what}; {todo}", code=WRONG_COLUMNS)
        kinds = (wanted, "string") if name in _BYTES else (wanted,)
        kind = dict(columns)[name]
        if kind not in kinds:
            raise ConfigError(
                f"the transform returns the column {name} as {kind}, not as {' or '.join(kinds)}; "
                "cast it",
                code=WRONG_COLUMNS,
            )


def _refuse_operators(operators: Iterable[Any], source: Any) -> None:
    """Raise ConfigError for the first operator that is not permitted."""
    for operator in operators:
        name = operator.nodeName()
        if operator.children().isEmpty():
            # a checkpoint has the same columns, but other data
            if not operator.sameResult(source) or _ids(operator) != _ids(source):
                raise _refusal(f"the transform reads other data ({name})", "use only the records")
        elif name not in ALLOWED:
            named = f"{_NAMES[name]} ({name})" if name in _NAMES else f"the operator {name}"
            what = f"the transform's plan has {named}, which needs more than one record"
            raise _refusal(what, _TODO)
        if not operator.subqueries().isEmpty():
            raise _refusal(f"the transform's plan has a subquery (in {name})", _TODO)


_TODO: Final = "select, filter and convert each record by itself"


def _failed(what: str) -> ConfigError:
    return ConfigError(f"the transform failed: {what}; correct the function", code=FAILED)


def _refusal(what: str, todo: str) -> ConfigError:
    return ConfigError(f"{what}; {todo}", code=NOT_ROW_BY_ROW)


def _analyzed(rows: DataFrame) -> Any:
    """Return the DataFrame's analyzed plan, a Java object. Raises EnvironmentMissing."""
    try:
        frame: Any = rows._jdf
    except (AttributeError, PySparkException):
        raise EnvironmentMissing(
            "transforms can be checked only in a session of Spark classic, not of Spark Connect"
        ) from None
    return frame.queryExecution().analyzed()


def _is_cached(rows: DataFrame) -> bool:
    """Return True if Spark would read a part of the DataFrame from its cache."""
    frame: Any = rows._jdf
    plan = frame.queryExecution().withCachedData()
    return any(operator.nodeName() == "InMemoryRelation" for operator in _operators(plan))


def _depends_on_time(spark: Any, plan: Any) -> bool:
    """Return True if the plan contains now(), current_date() or a similar function."""
    patterns = spark._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(plan.containsPattern(patterns.CURRENT_LIKE()))


def _operators(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _operators(children.apply(number))


def _ids(plan: Any) -> dict[str, int]:
    """Return Spark's expression ID of each output column, by name. A column that an operator passes
    on unchanged has the same ID before and after the operator.
    """
    output = plan.output()
    columns = [output.apply(number) for number in range(output.size())]
    return {column.name(): int(column.exprId().id()) for column in columns}
