"""One ADR lists all parts of PySpark that are used but not public."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
DECISION: Final = next((ROOT / "docs" / "adr").glob("*-what-we-use-of-pyspark-*.md"))
SOURCES: Final = [
    *(ROOT / "src" / "twinlog" / "spark").rglob("*.py"),
    *(ROOT / "src" / "twinlog" / "records").rglob("*.py"),
    *(ROOT / "src" / "twinlog" / "transforms").rglob("*.py"),
]
OWNERS: Final = {"SparkContext", "context", "self._context", "accumulators", "server"}
INNER: Final = (
    r"PythonGatewayServer|Accumulator\w*Server|_PYSPARK_\w+|spark\.python\.daemon\.module"
)


def internals() -> set[str]:
    """Return the used private names of PySpark, assignments to its attributes, and modules for its
    own use.
    """
    found: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(attr="_jrdd" | "_jsc" | "_jdf" as name) | ast.Name(
                    "INPUT_CONVERTER" as name
                ):
                    found.add(name)
                case ast.Attribute(attr=name, value=owner, ctx=how):
                    is_set = isinstance(how, ast.Store)
                    if ast.unparse(owner) in OWNERS and (name.startswith("_") or is_set):
                        found.add(name)
                case ast.ImportFrom(module="pyspark.daemon" | "pyspark.worker" as module):
                    found.add(module)
                case ast.Import(names=names):
                    found |= {one.name for one in names if one.name == "pyspark.worker"}
                case ast.FunctionDef(name=name) if name.startswith("_read_with"):  # Spark calls it
                    found.add(name)
                case ast.Constant(value=str(text)):
                    found |= set(re.findall(INNER, text))
    return found


def test_the_decision_names_all_that_is_used() -> None:
    named = DECISION.read_text()
    found = internals()
    assert {"_read_with_length", "INPUT_CONVERTER", "spark.python.daemon.module"} <= found
    assert {"_jrdd", "_jdf", "_gateway", "pickleSer", "handle_error", "pyspark.daemon"} <= found
    assert {name for name in found if name not in named} == set()
