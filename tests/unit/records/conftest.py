"""Skips tests of filters on Spark 4.0, which has none. Runs tests of bytes with both kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.kernel_fuzz import use
from twinlog.records.spark_api import HAS_FILTERS
from twinlog.wire.kernels.chosen import CHOSEN
from twinlog.wire.kernels.twin import TWIN

collect_ignore: Final = [] if HAS_FILTERS else ["test_filters.py"]


@pytest.fixture(scope="module", params=["compiled", "Python"])
def each_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run all tests of a module once with the compiled kernels and once with the Python twin."""
    if request.param == "compiled" and not CHOSEN.is_compiled:
        pytest.skip(f"the kernels are not compiled here: {CHOSEN.not_compiled_reason}")
    with use(CHOSEN.kernels if request.param == "compiled" else TWIN):
        yield
