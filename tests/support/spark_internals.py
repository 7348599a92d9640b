"""The parts of PySpark that Twinlog uses, public or not, and which of them the installed version
has.

`python -m tests.support.spark_internals` prints a line for each part, and `scripts/sparks` does so
for each minor version.
"""

from __future__ import annotations

import inspect
import zipfile
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import INPUT_CONVERTER
from pyspark import RDD, SparkContext, accumulators, daemon, worker
from pyspark.sql import DataFrame, datasource

CLASSES: Final = {
    "org.apache.spark.api.python.PythonGatewayServer": "spark-core_",
    "org.apache.spark.launcher.JavaModuleOptions": "spark-launcher_",
}


def _has_class(name: str, jar: str) -> bool:
    (found,) = (Path(pyspark.__file__).parent / "jars").glob(f"{jar}*.jar")
    with zipfile.ZipFile(found) as archive:
        return f"{name.replace('.', '/')}.class" in archive.namelist()


def internals() -> dict[str, bool]:
    """Return, by the name of each part, True if the installed PySpark has it."""
    context, rdd = inspect.getsource(SparkContext), inspect.getsource(RDD)
    streaming = Path(pyspark.__file__).parent / "sql" / "streaming" / "datasource.py"
    return {
        **{name.rpartition(".")[2]: _has_class(name, jar) for name, jar in CLASSES.items()},
        "_PYSPARK_DRIVER_CONN_INFO_PATH": _in_gateway("_PYSPARK_DRIVER_CONN_INFO_PATH"),
        "SparkContext._ensure_initialized": hasattr(SparkContext, "_ensure_initialized"),
        "SparkContext._gateway, _jvm, _active_spark_context": all(
            hasattr(SparkContext, name) for name in ("_gateway", "_jvm", "_active_spark_context")
        ),
        "_jsc.sc()": "self._jsc.sc()" in context,
        "_jrdd": "_jrdd" in rdd,
        "_jdf": "_jdf" in DataFrame.__annotations__,
        "accumulators.pickleSer": hasattr(accumulators, "pickleSer"),
        "AccumulatorTCPServer": hasattr(accumulators, "AccumulatorTCPServer"),
        "AccumulatorServer": hasattr(accumulators, "AccumulatorServer"),
        "INPUT_CONVERTER": any("sql" in type(one).__module__ for one in INPUT_CONVERTER),
        "pyspark.daemon.manager": hasattr(daemon, "manager"),
        "pyspark.worker.main": hasattr(worker, "main"),
        "datasource.DataSourceArrowWriter": hasattr(datasource, "DataSourceArrowWriter"),
        "datasource.DataSourceStreamArrowWriter": hasattr(
            datasource, "DataSourceStreamArrowWriter"
        ),
        "datasource.Filter": hasattr(datasource, "Filter"),
        "DataFrame.repartitionById": hasattr(DataFrame, "repartitionById"),
        "streaming.datasource": streaming.exists(),
    }


def _in_gateway(name: str) -> bool:
    return name in (Path(pyspark.__file__).parent / "java_gateway.py").read_text()


if __name__ == "__main__":
    print("PySpark", pyspark.__version__)  # noqa: T201
    for one, is_there in internals().items():
        print(f"  {'yes' if is_there else '-':4} {one}")  # noqa: T201
