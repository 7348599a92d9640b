"""The resources of Kubernetes that `spark-submit` creates for a mirror."""

from __future__ import annotations

import json
import shlex
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.support.standalone import spark_submit
from twinlog.spark.authentication import AUTHENTICATED
from twinlog.spark.options import NEEDED

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parents[2]
SECRETS = "/etc/twinlog"
FILE_THERE = f"{SECRETS}/mm2.properties"
MAIN_THERE = "local:///usr/local/lib/python3.11/site-packages/twinlog/__main__.py"


class ApiServer(ThreadingHTTPServer):
    """Stores the resources that it gets, like an API server, but creates no pod."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ApiRequest)
        self.url = f"k8s://http://127.0.0.1:{self.server_port}"
        self.kept: dict[str, Any] = {}


class ApiRequest(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        resource = json.loads(body)
        assert isinstance(self.server, ApiServer)
        self.server.kept[resource["kind"]] = json.loads(body)
        resource["metadata"]["uid"] = "1"
        answer = json.dumps(resource).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_PATCH = do_POST

    def log_message(self, *_: object) -> None:
        pass


def test_the_driver_is_a_pod_that_kubernetes_takes(quick_jvms: None) -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    (words,) = (part for part in page.split("\n\n") if "--deploy-mode cluster --name" in part)
    command = shlex.split(words.strip("`\n").replace("\\\n", ""))
    assert command.pop(0) == "spark-submit"
    with ApiServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = command.index("k8s://https://HOST:6443")
        command[at] = server.url
        spark_submit("--conf", "spark.kubernetes.submission.waitAppCompletion=false", *command)
        server.shutdown()
    for resource in server.kept.values():
        kubernetes_validate.validate(resource, kubernetes_validate.latest_version(), strict=True)
    pod, settings = server.kept["Pod"]["spec"], server.kept["ConfigMap"]["data"]["spark.properties"]
    (container,) = pod["containers"]
    assert container["args"][-5:] == [MAIN_THERE, "mirror", FILE_THERE, "--listen", "off"]
    assert pod["serviceAccountName"] == "spark"
    (mounted,) = (one["name"] for one in container["volumeMounts"] if one["mountPath"] == SECRETS)
    assert {"name": mounted, "secret": {"secretName": "mirror"}} in pod["volumes"]
    for key, value in {**NEEDED, **AUTHENTICATED}.items():
        assert f"{key}={value}\n" in settings
