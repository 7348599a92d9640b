"""A mirror does not import the modules that only DataFrames need, and DataFrames do not import
those of a mirror.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from twinlog.records.spark_api import HAS_LIMITS

LOADED = """
import sys, {module}
print(sorted({{"pyarrow", "pandas", "numpy", "grpc", "twinlog.records"}} & sys.modules.keys()))
"""


@pytest.mark.parametrize("module", ["twinlog.spark.daemon", "twinlog.cli.main", "twinlog.client"])
def test_mirrors_load_no_data_frames(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    # Spark's own worker imports numpy before 4.2
    own = module == "twinlog.spark.daemon" and not HAS_LIMITS
    assert done.stdout == ("['numpy']\n" if own else "[]\n")


def test_without_pyarrow_the_error_names_the_package_to_install() -> None:
    script = "import sys; sys.modules['pyarrow'] = None; import twinlog.records as r; r.register(0)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    needed = r"pip install .*'pyarrow>=18' .*'pyspark<4\.4,>=4\.0'.* \[ENVIRONMENT\]$"
    assert re.search(needed, done.stderr.rstrip())


def test_data_frames_load_nothing_of_the_mirror() -> None:
    """Reading and writing DataFrames imports no module of the mirror. The mirror changes PySpark
    for its whole process; for example, accumulator updates are ignored. A user's process must not
    be changed in this way.
    """
    script = (
        "import sys, twinlog.records.source, twinlog.records.write.partitioning\n"
        "import twinlog.records.batch_reader, twinlog.records.stream_reader\n"
        "import twinlog.records.write.writers\n"
        "apart = ('twinlog.spark', 'twinlog.control', 'twinlog.lane', 'twinlog.channel')\n"
        "print([name for name in sys.modules if name.startswith(apart)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_tasks_load_nothing_of_planning() -> None:
    """A task imports no module that is only for planning. Spark starts new Python workers often,
    because every `DataFrame.limit` ends a worker, and each would import these modules.
    """
    script = (
        "import pickle, subprocess, sys\n"
        "from twinlog.records.batch_reader import BatchReader\n"
        "from twinlog.records.options import parse_options\n"
        "given = {'kafka.bootstrap.servers': 'localhost:1', 'subscribe': 'orders'}\n"
        "reader = pickle.dumps(BatchReader(parse_options(given, is_stream=False), ['value']))\n"
        "task = 'import pickle, sys; pickle.loads(eval(sys.argv[1])); print(*sys.modules)'\n"
        "print(subprocess.check_output([sys.executable, '-c', task, repr(reader)], text=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    found = done.stdout.split()
    assert "twinlog.records.tasks" in found
    apart = ("twinlog.cluster.groups", "twinlog.survey", "twinlog.records.options", "pandas")
    assert [name for name in found if name.startswith(apart)] == []


def test_inherited_objects_of_a_worker_are_collected_once() -> None:
    """Spark collects garbage after each task, and the next task waits for that. So objects that a
    worker has inherited must be collected only once, and not after every task.
    """
    script = (
        "import gc\n"
        "from pyspark import TaskContext\n"
        "from pyspark.sql.datasource import InputPartition\n"
        "from twinlog.records.batch_reader import BatchReader\n"
        "from twinlog.records.options import parse_options\n"
        "given = {'kafka.bootstrap.servers': 'localhost:1', 'subscribe': 'orders'}\n"
        "reader = BatchReader(parse_options(given, is_stream=False), ['value'])\n"
        "def task():\n"
        "    assert list(reader.read(InputPartition(None))) == []\n"
        "    gc.collect()\n"
        "    print(len(gc.get_objects()))\n"
        "task()\n"  # outside of Spark
        "TaskContext._setTaskContext(TaskContext())\n"
        "task(), task(), task()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    outside, first, *later = map(int, done.stdout.split())
    assert min(outside, first) > 20_000
    assert max(later) < 2_000, later


def test_the_schema_is_returned_fast() -> None:
    """Spark starts a process to get the schema in every query. So this process must import neither
    pyarrow nor the Kafka package.
    """
    script = (
        "import sys\n"
        "from twinlog.records.source import TwinlogSource\n"
        "TwinlogSource({'upstream': 'A'}).schema()\n"
        "print(sorted({'pyarrow', 'kafka'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
