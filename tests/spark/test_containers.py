"""Mirrors in containers: on a real YARN, and in the pods that `spark-submit` creates on
Kubernetes.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest

from tests.support.command import Command
from tests.support.eventually import eventually
from tests.support.spark_mirror import Orders
from tests.support.standalone import HOME, spark_submit
from tests.support.yarn import Yarn
from twinlog.spark.authentication import AUTHENTICATED
from twinlog.spark.options import NEEDED

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "src" / "twinlog" / "__main__.py"
SECRETS = "/etc/twinlog"
FILE_THERE = f"{SECRETS}/mm2.properties"
MAIN_THERE = "local:///usr/local/lib/python3.11/site-packages/twinlog/__main__.py"
IN_A_CONTAINER = {
    **NEEDED,
    **AUTHENTICATED,
    "spark.yarn.appMasterEnv.PYTHONPATH": "twinlog-executors",
    "spark.executorEnv.PYTHONPATH": "twinlog-executors",
}
IN_A_SESSION = """
import sys
from pyspark.sql import SparkSession
import twinlog

spark = SparkSession.builder.getOrCreate()
result = twinlog.run(spark, sys.argv[1], once=True, lanes=1)
spark.stop()
sys.exit(sum(flow.records for flow in result.flows) != 3000)
"""


BARE: Final = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
"""A Python without Twinlog, like the one on a node of a cluster."""


@pytest.fixture
def yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_jvms: None) -> Iterator[Yarn]:
    yarn = Yarn(tmp_path / "yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    monkeypatch.setenv("PYSPARK_PYTHON", str(BARE))
    try:
        yarn.start()
        yield yarn
    finally:
        yarn.end()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    archive = tmp_path / "twinlog-executors.zip"
    with Command(tmp_path / "pack", "pack", "--output", str(archive)) as packing:
        assert packing.wait() == 0, packing.stderr
    return archive


@pytest.mark.parametrize("how", ["command", "client", "cluster", "twinlog.run", "standby"])
def test_executors_and_drivers_are_containers_of_yarn(
    orders: Orders, yarn: Yarn, tmp_path: Path, archive: Path, how: str
) -> None:
    settings = {"spark.yarn.jars": f"local:{HOME}/jars/*", "spark.executor.instances": "1"}
    conf = words_of({**settings, "spark.executor.cores": "2"})
    mirror = ("mirror", str(orders.file), "--once", "--lanes", "1", "--listen", "off")
    if how == "command":
        words = (*mirror, "--master", "yarn", "--archive", str(archive), *conf)
        with Command(tmp_path / "run", *words) as run:
            assert run.wait() == 0, run.stderr[-6000:]
    else:
        mode = "client" if how == "client" else "cluster"
        sent = ("--files", str(orders.file), "--archives", f"{archive}#twinlog-executors")
        needed = ("--master", "yarn", "--deploy-mode", mode, *sent, *words_of(IN_A_CONTAINER))
        python = {"PYSPARK_DRIVER_PYTHON": sys.executable} if how == "client" else {}
        there: tuple[str, ...] = (str(MAIN), *mirror)
        if how == "standby":
            return takes_over_in_a_container(orders, yarn, tmp_path, (*needed, *conf))
        if how == "cluster":
            there = (str(MAIN), "mirror", orders.file.name, *mirror[2:])
        elif how == "twinlog.run":
            script = tmp_path / "session.py"
            script.write_text(IN_A_SESSION)
            there = (str(script), orders.file.name)
        spark_submit(*needed, *conf, *there, **python)
    (application,) = yarn.applications()
    assert application["finalStatus"] == "SUCCEEDED"
    assert orders.are_identical()


def takes_over_in_a_container(
    orders: Orders, yarn: Yarn, folder: Path, submitting: tuple[str, ...]
) -> None:
    """Submit a standby in cluster mode, which YARN would kill if it started no Spark application in
    time. Kill the leader, and check that the standby takes over.
    """
    patience = {"am.waitTime": "60s", "maxAppAttempts": "1", "submit.waitAppCompletion": "false"}
    words = words_of({f"spark.yarn.{key}": value for key, value in patience.items()})
    common = ("--lanes", "1", "--listen", "off")
    with Command(folder / "leads", "mirror", str(orders.file), *common) as leader:
        orders.arrive()
        spark_submit(*submitting, *words, str(MAIN), "mirror", orders.file.name, *common)
        (application,) = eventually(lambda: [a for a in yarn.applications() if is_settled(a)])
        assert application["state"] == "RUNNING", application["diagnostics"]
        leader.process.kill()
        orders.produce(200)
        orders.arrive()
    assert orders.are_identical()


def is_settled(application: Mapping[str, Any]) -> bool:
    return application["state"] in {"RUNNING", "FAILED", "FINISHED", "KILLED"}


class ApiServer(ThreadingHTTPServer):
    """Stores the resources that clients create, as an API server does. It creates no pods."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ApiRequest)
        self.url = f"k8s://http://127.0.0.1:{self.server_port}"
        self.kept: dict[str, Any] = {}
        self.closing = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def server_close(self) -> None:
        self.closing.set()
        self.shutdown()
        super().server_close()

    def require_valid(self) -> None:
        """Raise an error if a stored resource differs from the API's schema."""
        for resource in self.kept.values():
            newest = kubernetes_validate.latest_version()
            kubernetes_validate.validate(resource, newest, strict=True)


class ApiRequest(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        if "watch=true" in self.path:
            self.server.closing.wait()
        else:
            self.answer({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        resource = json.loads(body)
        self.server.kept[resource["kind"]] = json.loads(body)
        resource["metadata"]["uid"] = "1"
        self.answer(resource)

    do_PATCH = do_POST

    def answer(self, resource: Any) -> None:
        answer = json.dumps(resource).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def test_driver_and_executors_are_pods_that_kubernetes_takes(
    orders: Orders, tmp_path: Path, quick_jvms: None
) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    (words,) = (part for part in page.split("\n\n") if "--deploy-mode cluster --name" in part)
    command = shlex.split(words.strip("`\n").replace("\\\n", ""))
    assert command.pop(0) == "spark-submit"
    with ApiServer() as server:
        server.run()
        at = command.index("k8s://https://HOST:6443")
        command[at] = server.url
        spark_submit("--conf", "spark.kubernetes.submission.waitAppCompletion=false", *command)
    server.require_valid()
    pod, settings = server.kept["Pod"]["spec"], server.kept["ConfigMap"]["data"]["spark.properties"]
    (container,) = pod["containers"]
    assert container["args"][-5:] == [MAIN_THERE, "mirror", FILE_THERE, "--listen", "off"]
    assert pod["serviceAccountName"] == "spark"
    (mounted,) = (one["name"] for one in container["volumeMounts"] if one["mountPath"] == SECRETS)
    assert {"name": mounted, "secret": {"secretName": "mirror"}} in pod["volumes"]
    for key, value in {**NEEDED, **AUTHENTICATED}.items():
        assert f"{key}={value}\n" in settings

    image = {"spark.kubernetes.container.image": "registry.example/spark-python311:4.3.0"}
    conf = words_of({**image, "spark.executor.cores": "2", "spark.executor.instances": "1"})
    with ApiServer() as server:
        server.run()
        options = ("--master", server.url, "--listen", "off", *conf)
        with Command(tmp_path / "run", "mirror", str(orders.file), *options) as mirror:
            eventually(lambda: "Pod" in server.kept, what="the pod of an executor")
            assert mirror.process.poll() is None
            mirror.process.kill()
    server.require_valid()
    (container,) = server.kept["Pod"]["spec"]["containers"]
    # 1 GiB of heap, 384 MiB for the JVM, and 160 MiB for each lane
    requested = {"cpu": "2", "memory": f"{1024 + 384 + 2 * 160}Mi"}
    assert container["resources"]["requests"] == requested
    given = [one["value"] for one in container["env"] if one["name"].startswith("SPARK_JAVA_OPT")]
    assert {f"-D{key}={value}" for key, value in AUTHENTICATED.items()} <= {*given}


def words_of(settings: Mapping[str, str]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
