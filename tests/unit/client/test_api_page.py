"""docs/api.md describes the whole Python API, and the imports of its example work."""

from __future__ import annotations

import re
from pathlib import Path

import twinlog.client as api
from twinlog.client import MirrorClient

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text()


def test_every_name_is_exported_and_explained() -> None:
    assert sorted(api.__all__) == list(api.__all__)
    assert all(hasattr(api, name) for name in api.__all__)
    assert {name for name in api.__all__ if name not in PAGE} == {"GroupOffsets"}


def test_every_method_is_explained() -> None:
    methods = {name for name in vars(MirrorClient) if not name.startswith("_")} - {"close"}
    assert {name for name in methods if f"`{name}" not in PAGE} == set()


def test_the_example_uses_existing_names() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    compile(example, "api.md", "exec")
    used = set(re.findall(r"client\.(\w+)\(", example))
    assert used
    assert all(hasattr(MirrorClient, name) for name in used)
