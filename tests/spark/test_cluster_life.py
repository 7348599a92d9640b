"""A mirror on a standalone cluster whose workers, master and leaders come and go."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import produce
from tests.support.command import Command
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.spark_mirror import (
    PARTITIONS,
    Load,
    alias_of,
    arrived,
    assert_identical,
    caught_up,
    config,
    orders,
)
from tests.support.standalone import (  # noqa: F401 (a fixture)
    HOME,
    Cluster,
    answer_of,
    conf,
    end,
    free_port,
)
from tests.support.topics import create_topic
from twinlog.sandbox import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]


@pytest.fixture(autouse=True)
def quick_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers, daemons and executors that live for seconds."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.fixture
def cluster(tmp_path: Path, conf: Path) -> Iterator[Cluster]:  # noqa: F811 (the fixture)
    """Not started yet."""
    assert conf.is_dir()
    cluster = Cluster(tmp_path)
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def file(
    source_cluster: LocalCluster, target_cluster: LocalCluster, fresh_topic: str, tmp_path: Path
) -> Path:
    """A configuration whose topic has 3000 records."""
    create_topic(source_cluster, fresh_topic, partitions=PARTITIONS)
    produce(source_cluster, fresh_topic, orders(3000))
    return config(tmp_path, source_cluster, target_cluster, fresh_topic)


def state_of(address: str) -> dict[str, Any]:
    """What a mirror says of its only flow."""
    (flow,) = answer_of(f"http://{address}/api/v1/flows")["flows"]
    assert isinstance(flow, dict)
    return flow


def test_a_standby_takes_no_core_and_takes_over_where_verify_found_room(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    cluster: Cluster,
    file: Path,
) -> None:
    flow = f"A->{alias_of(fresh_topic)}"
    cluster.start_master()
    for _ in range(2):
        cluster.add_worker()
    words = ("mirror", str(file), "--master", cluster.url, "--lanes", "1", "--listen", "off")
    with Command(tmp_path / "leads", *words) as leader:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3000)
        assert cluster.applications() == {f"twinlog {flow}": 2}
        assert "2 cores for 2 task slots; each flow keeps one slot" in leader.stderr
        with Command(tmp_path / "waits", *words) as standby:
            eventually(lambda: "ready to take over" in standby.stderr)
            question = ("verify", str(file), "--master", cluster.url)
            with Command(tmp_path / "verify", *question) as verify:
                assert verify.wait() == 0, verify.stderr
            assert "3,000 records are equal" in verify.stdout
            assert cluster.applications() == {f"twinlog {flow}": 2}, "the standby has none"
            assert standby.process.poll() is None
            leader.process.kill()
            produce(source_cluster, fresh_topic, orders(200, begin=3000))
            eventually(lambda: arrived(target_cluster, fresh_topic) == 3200)
            assert cluster.applications() == {f"twinlog {flow}": 2}, "only the standby's"
            standby.terminate()
            assert standby.wait() == 0, standby.stderr
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 3200


def test_a_warm_standby_holds_one_executor_and_takes_over_with_it(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    cluster: Cluster,
    file: Path,
) -> None:
    cluster.start_master()
    for _ in range(2):
        cluster.add_worker()
    words = ("mirror", str(file), "--master", cluster.url, "--lanes", "1", "--listen", "off")
    more = ("--set", "twinlog.spark.standby=warm", "--conf", "spark.executor.cores=1")
    with Command(tmp_path / "leads", *words, *more, "--name", "leads") as leader:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3000)
        with Command(tmp_path / "waits", *words, *more, "--name", "waits") as standby:
            eventually(lambda: cluster.applications().get("waits") == 1, what="one executor")
            eventually(lambda: "ready to take over" in standby.stderr)
            leader.process.kill()
            produce(source_cluster, fresh_topic, orders(200, begin=3000))
            eventually(lambda: arrived(target_cluster, fresh_topic) == 3200)
            assert set(cluster.applications()) == {"waits"}
            standby.terminate()
            assert standby.wait() == 0, standby.stderr
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 3200


def test_a_flow_without_executors_waits_for_spark_as_long_as_it_takes(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    cluster: Cluster,
    file: Path,
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    words = ("mirror", str(file), "--master", cluster.url, "--lanes", "1", "--listen", listen)
    said = f"WAITING_FOR_SPARK: no executor of {cluster.url} has registered; Spark says: "

    def is_waiting() -> bool:
        flow = state_of(listen)
        return flow["state"] == "WAITING_FOR_SPARK" and "Spark says" in flow["reason"]

    with Command(tmp_path / "run", *words) as mirror:
        eventually(is_waiting, what="a state: there is no master")
        cluster.start_master()
        eventually(cluster.applications, what="an application")
        eventually(lambda: "Initial job has not accepted any resources" in mirror.stderr)
        assert is_waiting()
        worker = cluster.add_worker()
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3000)
        eventually(lambda: state_of(listen)["state"] == "RUNNING")
        assert said in mirror.stderr + mirror.stdout
        end(worker)
        produce(source_cluster, fresh_topic, orders(200, begin=3000))
        eventually(is_waiting, what="a state: its only worker is gone")
        cluster.add_worker()
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3200)
        mirror.terminate()
        assert mirror.wait() == 0, mirror.stderr
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 3200


def test_lanes_follow_the_slots_of_workers_that_come_and_go(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    cluster: Cluster,
    file: Path,
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    words = ("mirror", str(file), "--master", cluster.url, "--listen", listen)
    cluster.start_master()
    cluster.add_worker()
    with Command(tmp_path / "run", *words, "--lanes", "2", "--lease", "10") as mirror:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3000)
        load = Load(source_cluster, fresh_topic, 3000)
        try:
            assert "offers 2 task slots, but lanes and the next lease need 3" in mirror.stderr
            eventually(lambda: lanes_of_last_lease(mirror) == 1)
            more = cluster.add_worker()
            eventually(lambda: lanes_of_last_lease(mirror) == 2, what="lanes on both workers")
            lease = newest_lease()["jobId"]
            eventually(lambda: newest_lease()["jobId"] > lease, what="the next lease")
            eventually(lambda: newest_lease()["numActiveTasks"] == 2, what="it has both slots")
            end(more)
            eventually(lambda: lanes_of_last_lease(mirror) == 1, what="lanes on the other worker")
            eventually(lambda: newest_lease()["numActiveTasks"] == 1, what="a slot for that lane")
        finally:
            load.stop()
        eventually(lambda: caught_up(source_cluster, target_cluster, fresh_topic))
        mirror.terminate()
        assert mirror.wait() == 0, mirror.stderr
    assert assert_identical(source_cluster, target_cluster, fresh_topic) > 3000


def lanes_of_last_lease(mirror: Command) -> int:
    """What Spark's page says of the newest job that runs."""
    assert mirror.process.poll() is None
    return int(newest_lease()["numTasks"])


def newest_lease() -> Any:
    """Its job."""
    return max(leases("jobs"), key=lambda one: int(one["jobId"]))


def leases(what: str, port: int = 4040) -> list[Any]:
    """The jobs or stages of lanes; one that waits for an executor may have run before."""
    found = [one for one in of_the_page(what, port) if "lease" in one.get("description", "")]
    return [one for one in found if " copied " not in one["description"]]


def of_the_page(what: str, port: int = 4040) -> Any:
    """What the REST of Spark's page has of its only application."""
    at = f"http://127.0.0.1:{port}/api/v1/applications"
    (application,) = answer_of(at)
    return answer_of(f"{at}/{application['id']}/{what}")


def test_sparks_page_shows_what_each_lease_has_copied(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    cluster: Cluster,
    file: Path,
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    cluster.start_master()
    cluster.add_worker()
    words = ("mirror", str(file), "--master", cluster.url, "--lanes", "1", "--listen", listen)

    def copied() -> list[Any]:
        found = of_the_page("stages")
        return [one for one in found if " copied " in one["name"] and one["status"] == "COMPLETE"]

    with Command(tmp_path / "run", *words, "--lease", "10") as mirror:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3000)
        eventually(copied, what="the rows of a lease that has ended")
        produce(source_cluster, fresh_topic, orders(200, begin=3000))
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3200)
        eventually(lambda: len(copied()) == 2, what="the rows of a lease with new records")
        flow, found = state_of(listen), copied()
        mirror.terminate()
        assert mirror.wait() == 0, mirror.stderr
    second, first = found
    said = r"A->\w+: lease 1 of generation \d+ copied 3,000 records, .* [KM]B"
    assert re.fullmatch(said, first["name"])
    assert " copied 200 records, " in second["name"]
    rows = [row.split("\t") for one in found for row in one["details"].splitlines()[1:]]
    assert {(topic, int(partition)) for topic, partition, *_ in rows} == {
        (fresh_topic, partition) for partition in range(PARTITIONS)
    }
    assert sum(int(row[4]) for row in rows) == flow["records"] == 3200
    assert sum(int(row[5]) for row in rows) == flow["bytes"]


def test_sparks_configuration_counts_and_its_history_has_a_clean_end(
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    conf: Path,  # noqa: F811 (the fixture)
    cluster: Cluster,
    file: Path,
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    port = free_port()
    with (conf / "spark-defaults.conf").open("a") as defaults:
        defaults.write(
            f"spark.ui.port {port}\nspark.task.cpus 2\nspark.speculation true\n"
            "spark.driver.memory 700m\nspark.driver.extraJavaOptions -Dof.the.user=1\n"
            f"spark.app.name my-mirror\nspark.eventLog.enabled true\n"
            f"spark.eventLog.dir {events.as_uri()}\nspark.eventLog.rolling.enabled false\n"
            "spark.eventLog.compress false\n"
        )
    cluster.start_master()
    for _ in range(2):
        cluster.add_worker()
    words = ("mirror", str(file), "--master", cluster.url, "--lanes", "1", "--listen", "off")
    with Command(tmp_path / "run", *words, "--conf", "spark.ui.retainedJobs=7") as mirror:
        eventually(lambda: arrived(target_cluster, fresh_topic) == 3000)
        assert cluster.applications() == {"my-mirror": 4}, "two cores for each of two tasks"
        assert "spark.speculation true (lanes need false)" in mirror.stderr
        assert "spark.driver.memory" not in mirror.stderr
        settings = dict(of_the_page("environment", port)["sparkProperties"])
        assert settings["spark.driver.memory"] == "700m"
        assert ["of.the.user", "1"] in of_the_page("environment", port)["systemProperties"]
        assert settings["spark.task.cpus"] == "2"
        assert settings["spark.speculation"] == "false"
        assert settings["spark.ui.retainedJobs"] == "7"
        (job,) = leases("jobs", port)
        flow = f"A->{alias_of(fresh_topic)}"
        # generations count for all flows of a target
        assert re.fullmatch(rf"{flow}: lease 1 of generation \d+, 1 lane", job["description"])
        (stage,) = leases("stages", port)
        assert stage["name"] == job["description"]
        mirror.terminate()
        assert mirror.wait() == 0, mirror.stderr
    (log,) = events.iterdir()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    ends = [one["Job Result"]["Result"] for one in lines if one["Event"].endswith("JobEnd")]
    assert set(ends) == {"JobSucceeded"}
    assert any(one["Event"].endswith("ApplicationEnd") for one in lines)
    began = [one["Properties"] for one in lines if one["Event"].endswith("JobStart")]
    (copied,) = [one for one in began if "twinlog.records" in one]
    assert (copied["twinlog.lease"], copied["twinlog.records"]) == ("1", "3000")


@pytest.mark.parametrize("master", ["cluster", "local[4]"])
def test_spark_submit_runs_the_mirror_in_its_own_session(
    source_cluster: LocalCluster,
    target_cluster: LocalCluster,
    fresh_topic: str,
    tmp_path: Path,
    cluster: Cluster,
    file: Path,
    master: str,
) -> None:
    if master == "cluster":
        cluster.start_master()
        cluster.add_worker()
        master = cluster.url
    package = Path(__file__).parents[2] / "src" / "twinlog"
    words = ("--name", "submitted", "--conf", "spark.executorEnv.MARK=1")
    submit = [str(HOME / "bin" / "spark-submit"), "--master", master, *words]
    command = ("mirror", str(file), "--once", "--lanes", "1", "--listen", "off")
    done = subprocess.run(
        [*submit, str(package / "__main__.py"), *command],
        capture_output=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(HOME)},
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert assert_identical(source_cluster, target_cluster, fresh_topic) == 3000
    assert "submitted" in done.stderr, "the name of the outer application"
    assert done.stderr.count("Submitted application: submitted") == 1, done.stderr
