"""Sessions in which lanes cannot run."""

from __future__ import annotations

import pytest

from twinlog.errors import EnvironmentMissing
from twinlog.spark.attached import session_options


class ConnectSession:
    """Spark Connect's session has the attribute, and raises an error of its own."""

    @property
    def sparkContext(self) -> object:  # noqa: N802 (Spark's name)
        raise RuntimeError("[JVM_ATTRIBUTE_NOT_SUPPORTED]")


@pytest.mark.parametrize("session", [ConnectSession(), object()])
def test_a_session_without_a_context_is_one_clear_error(session: object) -> None:
    with pytest.raises(EnvironmentMissing, match="as with Spark Connect, on which lanes do not run"):
        session_options(session, may_be_open=True)
