"""A fixture that loads configurations from the test's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.properties import Loader, loader


@pytest.fixture
def read(tmp_path: Path) -> Loader:
    return loader(tmp_path)
