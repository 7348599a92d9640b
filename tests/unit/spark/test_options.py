"""Spark's settings are read as by `spark-submit`. Settings that lanes cannot work with are
refused.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from twinlog.errors import EnvironmentMissing, UsageError
from twinlog.spark.masters import cores_setting, memory_setting, standby_settings
from twinlog.spark.options import NEEDED, USUAL, log_replaced_settings, spark_options

MASTER = "spark://somewhere:7077"


@pytest.fixture(autouse=True)
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's own defaults file, as an operator of the cluster would write it."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        "# of this cluster\n"
        "spark.app.name      my-mirror\n"
        "spark.driver.memory 1500m\n"
        "spark.ui.killEnabled=true\n"
    )
    return file


def test_a_setting_of_the_user_counts_on_a_cluster() -> None:
    options = spark_options(master=MASTER)
    assert options.name == "my-mirror"
    assert options.usual.keys() == USUAL.keys() - {"spark.driver.memory", "spark.ui.killEnabled"}
    asked = spark_options(master=MASTER, name="other", conf=["spark.driver.memory=2g"])
    assert asked.name == "other"
    assert asked.user_settings["spark.driver.memory"] == "2g"
    assert asked.conf == {"spark.driver.memory": "2g"}


def test_a_properties_file_replaces_sparks_own(tmp_path: Path) -> None:
    file = tmp_path / "own.conf"
    file.write_text("spark.master spark://here:7077\nspark.executor.memory 2g\nother.key 1\n")
    options = spark_options(properties_file=file, conf=["spark.executor.cores = 2"])
    assert options.user_settings == {
        "spark.master": "spark://here:7077",
        "spark.executor.memory": "2g",
        "spark.executor.cores": "2",
    }
    assert (options.master, options.name) == ("spark://here:7077", None)


@pytest.mark.parametrize("master", [None, "local[4]"])
def test_lanes_of_this_machine_do_not_read_the_clusters_file(master: str | None) -> None:
    assert spark_options(master=master).user_settings == {}


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[4, 2]", "spark://a:1,b:2", "k8s://https://a:443", "yarn"],
)
def test_masters_that_spark_knows(master: str) -> None:
    assert spark_options(master=master).master == master


@pytest.mark.parametrize("master", ["", "nonsense", "local[x]", "localhost:7077", "spark://"])
def test_other_masters_are_refused(master: str) -> None:
    with pytest.raises(UsageError, match="is not a Spark master: write"):
        spark_options(master=master)


@pytest.mark.parametrize("conf", ["spark.x", "=1", "ui.enabled=true"])
def test_a_setting_that_spark_would_ignore_is_refused(conf: str) -> None:
    with pytest.raises(UsageError, match=r"write spark\.KEY=VALUE"):
        spark_options(conf=[conf])


def test_a_setting_that_lanes_do_not_allow_is_refused_or_named(
    caplog: pytest.LogCaptureFixture, defaults: Path
) -> None:
    with pytest.raises(UsageError, match=r"lanes need spark\.speculation=false"):
        spark_options(master=MASTER, conf=["spark.speculation=true"])
    defaults.write_text("spark.speculation true\nspark.task.maxFailures 4\nspark.task.cpus 2\n")
    with caplog.at_level(logging.WARNING):
        given = spark_options(master=MASTER).user_settings
        log_replaced_settings(given, {**NEEDED, "spark.task.maxFailures": "1000"})
    (line,) = caplog.messages
    assert line == (
        "settings of Spark that are replaced: spark.speculation true (lanes need false), "
        "spark.task.maxFailures 4 (lanes need 1000)"
    )


@pytest.mark.parametrize("source", ["file", "conf", "option"])
def test_the_deploy_mode_of_a_cluster_is_one_sentence(source: str, defaults: Path) -> None:
    key = "spark.submit.deployMode"
    if source == "file":
        defaults.write_text(f"{key} cluster\n")
    with pytest.raises(UsageError, match="only the mode client is possible"):
        spark_options(
            master=MASTER,
            conf=[f"{key}=cluster"] if source == "conf" else [],
            deploy_mode="cluster" if source == "option" else None,
        )
    assert spark_options(deploy_mode="client").master is None


def test_spark_connect_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    with pytest.raises(EnvironmentMissing, match="lanes do not run over Spark Connect"):
        spark_options()


def test_an_archive_needs_a_master(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pass the cluster's --master as well"):
        spark_options(archive=tmp_path / "executors.zip")


@pytest.mark.parametrize(
    ("given", "cores"),
    [
        ({}, "5"),
        ({"spark.task.cpus": "2"}, "10"),
        # with 5 cores in total, a second executor would get none
        ({"spark.executor.cores": "4"}, "8"),
        ({"spark.cores.max": "2"}, None),
        # Spark reports these
        ({"spark.task.cpus": "two", "spark.executor.cores": "0"}, "5"),
    ],
)
def test_an_application_takes_the_cores_of_its_lanes(
    given: dict[str, str], cores: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert cores_setting(MASTER, 5, given).get("spark.cores.max") == cores
    assert len(caplog.messages) == (cores is not None)
    assert cores_setting("yarn", 5, given) == cores_setting(MASTER, 0, given) == {}


@pytest.mark.parametrize(
    ("given", "overhead"),
    [
        ({}, "544m"),
        ({"spark.executor.cores": "8"}, "1664m"),
        ({"spark.executor.cores": "8", "spark.task.cpus": "2"}, "1024m"),
        ({"spark.executor.minMemoryOverhead": "1g"}, None),
        ({"spark.executor.cores": "1.5", "spark.task.cpus": "0"}, "544m"),
    ],
)
def test_a_container_has_the_memory_of_its_lanes(
    given: dict[str, str], overhead: str | None
) -> None:
    key, lane_bytes = "spark.executor.minMemoryOverhead", 160 << 20
    for master in ("yarn", "k8s://https://somewhere:443"):
        assert memory_setting(master, lane_bytes, given).get(key) == overhead
        assert memory_setting(master, 0, given) == {}
    assert memory_setting(MASTER, lane_bytes, given) == {}, "workers limit no memory"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("spark.yarn.max.executor.failures 3", "spark.executor.failuresValidityInterval"),
        ("spark.executor.failuresValidityInterval 1d", "spark.executor.maxNumFailures"),
    ],
)
def test_lost_executors_of_a_year_do_not_end_an_application(
    defaults: Path, line: str, kept: str
) -> None:
    both = {"spark.executor.maxNumFailures", "spark.executor.failuresValidityInterval"}
    assert both <= spark_options(master="yarn").usual.keys()
    defaults.write_text(line)
    assert both & spark_options(master="yarn").usual.keys() == {kept}


def test_a_warm_standby_uses_the_configured_resources() -> None:
    prefix = "spark.dynamicAllocation"
    assert standby_settings({f"{prefix}.minExecutors": "2", f"{prefix}.enabled": "false"}) == {
        f"{prefix}.shuffleTracking.enabled": "true"
    }
    assert standby_settings({})[f"{prefix}.minExecutors"] == "1"
