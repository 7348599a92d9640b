"""A mirror on a standalone cluster of Spark, whose workers, masters and leaders are started and
killed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.spark_mirror import PARTITIONS, Load, Orders, assert_identical, caught_up
from tests.support.standalone import Cluster, answer_of, end, free_port, spark_submit

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]


def mirror(
    orders: Orders,
    cluster: Cluster,
    folder: Path,
    *words: str,
    lanes: int = 1,
    listen: str = "off",
) -> Command:
    where = ("--master", cluster.url, "--lanes", str(lanes), "--listen", listen)
    return Command(folder, "mirror", str(orders.file), *where, *words)


def stop(mirror: Command) -> None:
    mirror.terminate()
    assert mirror.wait() == 0, mirror.stderr


def state_of(address: str) -> dict[str, Any]:
    """Return the state of a mirror's only flow."""
    (flow,) = answer_of(f"http://{address}/api/v1/flows")["flows"]
    assert isinstance(flow, dict)
    return flow


def test_a_standby_takes_no_core_and_takes_over_where_verify_found_room(
    orders: Orders, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(workers=2)
    with mirror(orders, cluster, tmp_path / "leads") as leader:
        orders.arrive()
        assert cluster.applications() == {f"twinlog {orders.flow}": 2}
        assert "2 cores for 2 task slots; each flow keeps one slot" in leader.stderr
        with mirror(orders, cluster, tmp_path / "waits") as standby:
            eventually(lambda: "ready to take over" in standby.stderr)
            question = ("verify", str(orders.file), "--master", cluster.url)
            with Command(tmp_path / "verify", *question) as verify:
                assert verify.wait() == 0, verify.stderr
            assert "3,000 records are equal" in verify.stdout
            assert cluster.applications() == {f"twinlog {orders.flow}": 2}, "the standby has none"
            assert standby.process.poll() is None
            leader.process.kill()
            orders.produce(200)
            orders.arrive()
            assert cluster.applications() == {f"twinlog {orders.flow}": 2}, "only the standby's"
            stop(standby)
    assert orders.are_identical()


def test_a_warm_standby_holds_one_executor_and_takes_over_with_it(
    orders: Orders, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start(workers=2)
    warm = ("--set", "twinlog.spark.standby=warm", "--conf", "spark.executor.cores=1")
    with mirror(orders, cluster, tmp_path / "leads", *warm, "--name", "leads") as leader:
        orders.arrive()
        with mirror(orders, cluster, tmp_path / "waits", *warm, "--name", "waits") as standby:
            eventually(lambda: cluster.applications().get("waits") == 1, what="one executor")
            eventually(lambda: "ready to take over" in standby.stderr)
            leader.process.kill()
            orders.produce(200)
            orders.arrive()
            assert set(cluster.applications()) == {"waits"}
            stop(standby)
    assert orders.are_identical()


def test_a_flow_without_executors_waits_for_spark_as_long_as_it_takes(
    orders: Orders, cluster: Cluster, tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    said = f"WAITING_FOR_SPARK: no executor of {cluster.url} has registered; Spark reports: "

    def is_waiting() -> bool:
        flow = state_of(listen)
        return flow["state"] == "WAITING_FOR_SPARK" and "Spark reports" in flow["reason"]

    with mirror(orders, cluster, tmp_path / "run", listen=listen) as leader:
        eventually(is_waiting, what="a state: there is no master")
        cluster.start_master()
        eventually(cluster.applications, what="an application")
        eventually(lambda: "Initial job has not accepted any resources" in leader.stderr)
        assert is_waiting()
        worker = cluster.add_worker()
        orders.arrive()
        eventually(lambda: state_of(listen)["state"] == "RUNNING")
        assert said in leader.stderr + leader.stdout
        end(worker)
        orders.produce(200)
        eventually(is_waiting, what="a state: its only worker is gone")
        cluster.add_worker()
        orders.arrive()
        cluster.end_master()
        cluster.start_master()
        eventually(is_waiting, what="a state: the new master has ended the executors")
        orders.produce(200)
        orders.arrive()
        assert "Spark's application ended: it has had no executor for" in leader.stderr
        early = [line for line in leader.stderr.splitlines() if "a lease ended early" in line]
        assert all(line.endswith("its application has ended [LEASE]") for line in early), early
        stop(leader)
    assert orders.are_identical()


def test_lanes_follow_the_slots_of_workers_that_come_and_go(
    orders: Orders, cluster: Cluster, tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    cluster.start()
    with mirror(
        orders, cluster, tmp_path / "run", "--lease", "10", lanes=2, listen=listen
    ) as leader:
        orders.arrive()
        load = Load(orders.source, orders.topic, orders.produced)
        try:
            assert "offers 2 task slots, but lanes and the next lease need 3" in leader.stderr
            eventually(lambda: lanes_of_last_lease(leader) == 1)
            more = cluster.add_worker()
            eventually(lambda: lanes_of_last_lease(leader) == 2, what="lanes on both workers")
            lease = newest_lease()["jobId"]
            eventually(lambda: newest_lease()["jobId"] > lease, what="the next lease")
            eventually(lambda: newest_lease()["numActiveTasks"] == 2, what="it has both slots")
            end(more)
            eventually(lambda: lanes_of_last_lease(leader) == 1, what="lanes on the other worker")
            eventually(lambda: newest_lease()["numActiveTasks"] == 1, what="a slot for that lane")
        finally:
            load.stop()
        eventually(lambda: caught_up(orders.source, orders.target, orders.topic))
        stop(leader)
    copied = assert_identical(orders.source, orders.target, orders.topic)
    assert copied > orders.produced


def lanes_of_last_lease(mirror: Command) -> int:
    """Return the number of lanes of the newest running lease, as Spark's page reports it."""
    assert mirror.process.poll() is None
    return int(newest_lease()["numTasks"])


def newest_lease() -> Any:
    """Return the newest job of a lease."""
    return max(leases("jobs"), key=lambda one: int(one["jobId"]))


def leases(what: str, port: int = 4040) -> list[Any]:
    """Return the jobs or stages of leases, as Spark's page reports them. A stage that is waiting
    for an executor may have run before.
    """
    found = [one for one in of_the_page(what, port) if "lease" in one.get("description", "")]
    return [one for one in found if " copied " not in one["description"]]


def of_the_page(what: str, port: int = 4040) -> Any:
    """Return the REST response of Spark's page about its only application."""
    at = f"http://127.0.0.1:{port}/api/v1/applications"
    (application,) = answer_of(at)
    return answer_of(f"{at}/{application['id']}/{what}")


def test_sparks_page_shows_the_copied_records_of_each_lease(
    orders: Orders, cluster: Cluster, tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    cluster.start()

    def copied() -> list[Any]:
        found = of_the_page("stages")
        return [one for one in found if " copied " in one["name"] and one["status"] == "COMPLETE"]

    with mirror(orders, cluster, tmp_path / "run", "--lease", "10", listen=listen) as leader:
        orders.arrive()
        eventually(copied, what="the rows of a lease that has ended")
        orders.produce(200)
        orders.arrive()
        eventually(lambda: len(copied()) == 2, what="the rows of a lease with new records")
        flow, found = state_of(listen), copied()
        stop(leader)
    second, first = found
    said = r"A->\w+: lease 1 of generation \d+ copied 3,000 records, .* [KM]B"
    assert re.fullmatch(said, first["name"])
    assert " copied 200 records, " in second["name"]
    rows = [row.split("\t") for one in found for row in one["details"].splitlines()[1:]]
    assert {(topic, int(partition)) for topic, partition, *_ in rows} == {
        (orders.topic, partition) for partition in range(PARTITIONS)
    }
    assert sum(int(row[4]) for row in rows) == flow["records"] == 3200
    assert sum(int(row[5]) for row in rows) == flow["bytes"]


def test_sparks_configuration_and_options_count_and_its_history_has_a_clean_end(
    orders: Orders, cluster: Cluster, tmp_path: Path, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = (conf / "spark-defaults.conf").read_text()
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
    cluster.start(workers=2)
    listen = f"127.0.0.1:{free_port()}"
    more = ("--conf", "spark.ui.retainedJobs=7")
    with mirror(orders, cluster, tmp_path / "run", *more, listen=listen) as leader:
        orders.arrive()
        assert cluster.applications() == {"my-mirror": 4}, "two cores for each of two tasks"
        assert "spark.speculation true (lanes need false)" in leader.stderr
        assert "spark.driver.memory" not in leader.stderr
        settings = dict(of_the_page("environment", port)["sparkProperties"])
        assert settings["spark.driver.memory"] == "700m"
        assert ["of.the.user", "1"] in of_the_page("environment", port)["systemProperties"]
        assert settings["spark.task.cpus"] == "2"
        assert settings["spark.speculation"] == "false"
        assert settings["spark.ui.retainedJobs"] == "7"
        (job,) = leases("jobs", port)
        # generations are counted over all flows of a target
        assert re.fullmatch(
            rf"{orders.flow}: lease 1 of generation \d+, 1 lane", job["description"]
        )
        (stage,) = leases("stages", port)
        assert stage["name"] == job["description"]
        eventually(lambda: state_of(listen)["records"] == orders.produced)
        flow = state_of(listen)
        stop(leader)
    (log,) = events.iterdir()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    ends = [one["Job Result"]["Result"] for one in lines if one["Event"].endswith("JobEnd")]
    assert set(ends) == {"JobSucceeded"}
    assert any(one["Event"].endswith("ApplicationEnd") for one in lines)
    began = [one["Properties"] for one in lines if one["Event"].endswith("JobStart")]
    (copied,) = [one for one in began if "twinlog.records" in one]
    assert copied["twinlog.lease"] == "1"
    sums = tuple(int(copied[f"twinlog.{name}"]) for name in ("records", "bytes"))
    assert sums == (flow["records"], flow["bytes"]), "a SparkListener's numbers"
    _try_options_of_spark_submit(orders, cluster, tmp_path, plain, monkeypatch)


EXECUTOR_MEMORY: Final = "spark.executor.memory"


def _try_options_of_spark_submit(
    orders: Orders,
    cluster: Cluster,
    tmp_path: Path,
    defaults: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = tmp_path / "own.conf"
    own.write_text(f"{defaults}spark.app.name in-the-file\nspark.master {cluster.url}\n")
    monkeypatch.delenv("SPARK_CONF_DIR")
    words = ("mirror", str(orders.file), "--properties-file", str(own), "--lanes", "1")
    for code, *refused in (
        (2, "--master", "sc://somewhere"),
        (1, "--conf", "spark.remote=sc://somewhere"),
        (2, "--deploy-mode", "cluster"),
        (2, "--conf", "spark.submit.deployMode=cluster"),
        (2, "--conf", "spark.speculation=true"),
    ):
        with Command(tmp_path / "refused", *words, *map(str, refused)) as mirror:
            assert mirror.wait() == code, mirror.stderr
        assert len(mirror.stderr.splitlines()) == 1, mirror.stderr
    more = ("--name", "named", "--conf", f"{EXECUTOR_MEMORY}=600m", "--listen", "off")
    with Command(tmp_path / "options", *words, *more) as mirror:
        eventually(lambda: cluster.applications() == {"named": 2})

        def executor_memory() -> str | None:
            try:
                return str(dict(of_the_page("environment")["sparkProperties"])[EXECUTOR_MEMORY])
            except json.JSONDecodeError:  # the response is plain text while Spark starts
                return None

        eventually(lambda: executor_memory() == "600m")
        stop(mirror)
    assert orders.are_identical()


@pytest.mark.parametrize("master", ["cluster", "local[4]"])
def test_spark_submit_runs_the_mirror_in_its_own_session(
    orders: Orders, cluster: Cluster, tmp_path: Path, master: str
) -> None:
    if master == "cluster":
        master = cluster.start()
    script = Path(__file__).parents[2] / "src" / "twinlog" / "__main__.py"
    words = ("--master", master, "--name", "submitted", "--conf", "spark.executorEnv.MARK=1")
    command = ("mirror", str(orders.file), "--once", "--lanes", "1", "--listen", "off")
    lines = spark_submit(*words, str(script), *command)
    assert orders.are_identical()
    assert sum("Submitted application: submitted" in line for line in lines) == 1, lines
