"""When Spark is used with a secret, and when it is refused."""

from __future__ import annotations

import pytest

from twinlog.errors import ConfigError
from twinlog.spark.authentication import AUTHENTICATED, OPEN, PINNED, SECRET, security_settings

STANDALONE = "spark://somewhere:7077"


@pytest.mark.parametrize("master", ["yarn", "k8s://https://somewhere", STANDALONE])
@pytest.mark.parametrize("may_be_open", [False, True])
def test_a_secret_that_is_there_is_used(master: str, may_be_open: bool) -> None:
    found = security_settings(master, {SECRET: "s", **OPEN}, may_be_open=may_be_open)
    assert found == AUTHENTICATED


@pytest.mark.parametrize("master", ["yarn", "k8s://https://somewhere"])
def test_a_master_that_makes_its_own_needs_none(master: str) -> None:
    assert security_settings(master, {}, may_be_open=False) == AUTHENTICATED


@pytest.mark.parametrize("master", [None, "local", "local[*]", "local[4,2]"])
@pytest.mark.parametrize("may_be_open", [False, True])
def test_lanes_of_this_machine_have_a_secret_and_no_network(
    master: str | None, may_be_open: bool
) -> None:
    configured = {**OPEN, "spark.driver.host": "192.0.2.1"}
    found = security_settings(master, configured, may_be_open=may_be_open)
    assert found == {**AUTHENTICATED, **PINNED}


@pytest.mark.parametrize("master", [STANDALONE, "local-cluster[2,1,512]", "mesos://else:5050"])
def test_any_other_master_without_a_secret_is_refused(master: str) -> None:
    with pytest.raises(ConfigError, match="--allow-unauthenticated-spark") as caught:
        security_settings(master, {"spark.authenticate": "true", SECRET: ""}, may_be_open=False)
    assert caught.value.code == "SPARK_UNAUTHENTICATED"
    assert caught.value.exit_code == 2
    assert f"`{SECRET}` in conf/spark-defaults.conf" in caught.value.message


def test_an_operator_may_allow_it() -> None:
    assert security_settings(STANDALONE, {}, may_be_open=True) == OPEN
