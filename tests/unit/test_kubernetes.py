"""deploy/kubernetes, the container image and the scrape configuration are valid and consistent."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from click import Context

from tests.support.eventually import PATIENCE_S
from tests.support.prometheus import check
from twinlog.cli.main import twinlog
from twinlog.config.load import load
from twinlog.control.web.address import parse_listen
from twinlog.model import Flow

DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy"
BASE: Final = DEPLOY / "kubernetes"
IMAGE: Final = DEPLOY / "Containerfile"
SCRAPE: Final = DEPLOY / "prometheus" / "twinlog.scrape.yml"

KUSTOMIZATION: Final = yaml.safe_load((BASE / "kustomization.yaml").read_text())
FILES: Final = [yaml.safe_load((BASE / name).read_text()) for name in KUSTOMIZATION["resources"]]
RESOURCES: Final = {one["kind"]: one for one in FILES}
TEMPLATE: Final = RESOURCES["Deployment"]["spec"]["template"]
POD: Final = TEMPLATE["spec"]
(CONTAINER,) = POD["containers"]
MOUNTED: Final = {one["mountPath"]: one["name"] for one in CONTAINER["volumeMounts"]}
SECRETS: Final = Path("/etc/twinlog/secrets")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile as (word, rest). Continued lines are joined."""
    text = re.sub(r"\\\n\s*", "", IMAGE.read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def labels_in(resource: Mapping[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = resource["metadata"]["labels"]
    return labels


@pytest.fixture(scope="module")
def rendered() -> list[dict[str, Any]]:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl")
    told = subprocess.run(
        ["kubectl", "kustomize", BASE],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert told.returncode == 0, told.stderr
    assert told.stderr == "", "what is deprecated is said there"
    return list(yaml.safe_load_all(told.stdout))


@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("resource", FILES, ids=RESOURCES)
def test_the_api_takes_it(resource: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
def test_the_api_accepts_the_rendered_resources(
    rendered: list[dict[str, Any]], version: str
) -> None:
    for resource in rendered:
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_misspelt_field_would_be_found() -> None:
    wrong = {**RESOURCES["PodDisruptionBudget"], "spec": {"maxUnavailabel": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.27", strict=True)


def test_rendering_leaves_every_selector_as_it_is(rendered: list[dict[str, Any]]) -> None:
    found = {one["kind"]: one for one in rendered}
    assert set(found) == {*RESOURCES, "ConfigMap"}
    assert {one["metadata"]["namespace"] for one in rendered} == {"twinlog"}
    for kind, written in RESOURCES.items():
        assert labels_in(found[kind]) == labels_in(written)
        for field in ("selector", "podSelector", "ingress", "egress"):
            assert found[kind]["spec"].get(field) == written["spec"].get(field)


def test_another_configuration_replaces_the_pods(rendered: list[dict[str, Any]]) -> None:
    found = {one["kind"]: one for one in rendered}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (mounted,) = (one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one)
    assert mounted == found["ConfigMap"]["metadata"]["name"]
    assert re.fullmatch(r"mirror-\w{10}", mounted)
    assert found["ConfigMap"]["data"] == {"mirror.yaml": (BASE / "mirror.yaml").read_text()}


def test_selectors_are_the_labels_of_the_pods() -> None:
    labels = labels_in(TEMPLATE)
    spread = POD["topologySpreadConstraints"]
    selectors = [
        RESOURCES["Deployment"]["spec"]["selector"],
        RESOURCES["PodDisruptionBudget"]["spec"]["selector"],
        RESOURCES["NetworkPolicy"]["spec"]["podSelector"],
        *(one["labelSelector"] for one in spread),
    ]
    assert [one["matchLabels"] for one in selectors] == [labels] * len(selectors)


def test_one_pod_is_a_standby_and_no_update_stops_both() -> None:
    spec = RESOURCES["Deployment"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = RESOURCES["PodDisruptionBudget"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "an outage keeps no node"


def test_the_pod_has_only_the_rights_of_a_mirror() -> None:
    assert POD["automountServiceAccountToken"] is False
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = {one["name"] for one in POD["volumes"] if "emptyDir" in one or "hostPath" in one}
    assert writable == {MOUNTED["/tmp"]}  # noqa: S108 (that of the pod)


def test_probes_and_prometheus_ask_where_it_listens() -> None:
    _, listen = at("--listen")
    address = parse_listen(listen)
    assert address is not None
    assert at("--set")[1] == "twinlog.rest.monitoring.open=true", "else it does not start there"
    (port,) = CONTAINER["ports"]
    assert port["containerPort"] == address.port
    probes = {name: one["httpGet"] for name, one in CONTAINER.items() if name.endswith("Probe")}
    assert {one["port"] for one in probes.values()} == {port["name"]}
    assert {name: one["path"] for name, one in probes.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert TEMPLATE["metadata"]["annotations"]["prometheus.io/port"] == str(address.port)
    (let_in,) = RESOURCES["NetworkPolicy"]["spec"]["ingress"]
    assert [one["port"] for one in let_in["ports"]] == [port["name"]]


def at(flag: str) -> tuple[str, str]:
    place = CONTAINER["args"].index(flag)
    return flag, CONTAINER["args"][place + 1]


def test_its_arguments_are_those_of_the_command(tmp_path: Path) -> None:
    name, *arguments = CONTAINER["args"]
    here = [one.replace("/etc/twinlog", str(tmp_path)) for one in arguments]
    (tmp_path / "secrets").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "mirror.yaml").touch()
    command = twinlog.get_command(Context(twinlog), name)
    assert command is not None
    assert command.make_context(name, here).params["files"]
    assert arguments[0] == "/etc/twinlog/config/mirror.yaml"
    assert MOUNTED["/etc/twinlog/config"] == "mirror"


def test_the_resource_loads_with_the_secrets_that_are_mounted(tmp_path: Path) -> None:
    """The resource loads with its secrets, which are mounted as Strimzi's operator mounts them: one
    folder for each secret.
    """
    assert at("--secrets")[1] == str(SECRETS)
    of_volume = {
        one["name"]: one["secret"]["secretName"] for one in POD["volumes"] if "secret" in one
    }
    folders = {Path(path).name for path in MOUNTED if Path(path).parent == SECRETS}
    mounted = {Path(path): of_volume[name] for path, name in MOUNTED.items() if name in of_volume}
    assert mounted == {SECRETS / secret: secret for secret in of_volume.values()}
    assert set(re.findall(r"secretName: (.+)", (BASE / "mirror.yaml").read_text())) == folders
    for name in folders:
        (tmp_path / name).mkdir()
        keys = ("ca.crt",) if name.endswith("-ca-cert") else ("ca.crt", "user.crt", "user.key")
        for key in keys:
            (tmp_path / name / key).write_text(f"text of {name}/{key}")
    config = load(BASE / "mirror.yaml", secrets=tmp_path)
    assert [str(one.flow) for one in config.flows] == [str(Flow("source", "target"))]
    assert config.warnings == ()
    (flow,) = config.flows
    assert flow.clients.source_consumer["ssl.keystore.key"] == "text of mirror-source/user.key"
    assert "text of" in flow.clients.target_producer["ssl.truststore.certificates"]


def relabelled(found: Mapping[str, str]) -> dict[str, str]:
    """Return a pod's labels after Prometheus' relabeling. Only the two actions in use are
    supported.
    """
    (job,) = yaml.safe_load(SCRAPE.read_text())["scrape_configs"]
    labels = dict(found)
    for step in job["relabel_configs"]:
        value = ";".join(labels.get(name, "") for name in step.get("source_labels", []))
        if step.get("action") == "keep":
            assert re.fullmatch(step["regex"], value), step
            continue
        assert set(step) <= {"source_labels", "target_label", "replacement"}
        labels[step["target_label"]] = step.get("replacement", value)
    return {name: value for name, value in labels.items() if not name.startswith("__")}


def test_scraped_series_have_the_labels_that_strimzis_board_selects_by() -> None:
    (port,) = CONTAINER["ports"]
    pod = {
        f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9]', '_', name)}": value
        for name, value in labels_in(TEMPLATE).items()
    }
    found = relabelled(
        {
            **pod,
            "__meta_kubernetes_pod_container_port_name": port["name"],
            "__meta_kubernetes_namespace": "twinlog",
            "__meta_kubernetes_pod_name": "mirror-mirrormaker2-7f-x",
            "__meta_kubernetes_pod_node_name": "node-1",
        }
    )
    assert found == {
        "namespace": "twinlog",
        "strimzi_io_kind": "KafkaMirrorMaker2",
        "strimzi_io_cluster": "mirror",
        "kubernetes_pod_name": "mirror-mirrormaker2-7f-x",
        "node_name": "node-1",
    }
    # the dashboard's CPU panel queries the kubelet for this container name
    assert CONTAINER["name"] == f"{found['strimzi_io_cluster']}-mirrormaker2"
    assert RESOURCES["Deployment"]["metadata"]["name"] == CONTAINER["name"]


def test_no_operator_of_strimzi_takes_the_pods_for_its_own() -> None:
    assert [name for name in labels_in(TEMPLATE) if "strimzi" in name] == []


def test_prometheus_reads_the_scrape_configuration(tmp_path: Path) -> None:
    """Prometheus accepts the scrape configuration. The discovery of pods is left out, because
    Debian's Prometheus lacks Kubernetes.
    """
    config = yaml.safe_load(SCRAPE.read_text())
    (job,) = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    check("check", "config", file)


def test_the_image_runs_as_the_user_of_the_pod_and_has_no_compiler() -> None:
    steps = instructions()
    stages = [place for place, (word, _) in enumerate(steps) if word == "FROM"]
    last = steps[stages[-1] :]
    runs = "".join(rest for word, rest in [*steps[: stages[1]], *last] if word == "RUN")
    assert "gcc" not in runs
    assert "-jre-headless" in runs
    assert "-jdk" not in IMAGE.read_text()
    (user,) = (rest for word, rest in last if word == "USER")
    security = POD["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert f"--uid {security['runAsUser']} " in runs
    assert "/healthz" in dict(last)["HEALTHCHECK"]
    assert f":{CONTAINER['ports'][0]['containerPort']}/" in dict(last)["HEALTHCHECK"]
    assert dict(last)["EXPOSE"] == str(CONTAINER["ports"][0]["containerPort"])


def test_the_image_is_made_of_files_that_are_there() -> None:
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY"]
    here = [name for names in copied if "--from" not in names[0] for name in names]
    assert len(here) > 5
    assert [name for name in here if not (DEPLOY.parent / name).exists()] == []
