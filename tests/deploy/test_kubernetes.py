"""The Kubernetes manifests: valid, consistent with each other and with the image, and safe when pods come and go."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate
import pytest

from cuebook.config import load
from tests.deploy.commands import check_command, check_environment
from tests.deploy.files import (
    KUBERNETES,
    container_of,
    documents,
    environment_of,
    instructions,
    manifests,
)
from tests.support.documentation import DOCS

MANIFESTS = dict(manifests())
WORKLOADS = {name: one for name, one in MANIFESTS.items() if one["kind"] == "Deployment"}
OLDEST = "1.30"


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", MANIFESTS)
def test_every_manifest_is_valid(name: str, version: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


def test_the_kustomization_lists_every_file() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    assert sorted(kustomization["resources"]) == sorted(
        path.name for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml"
    )
    assert {one["name"] for one in kustomization["images"]} == {
        container_of(one)["image"] for one in WORKLOADS.values()
    }
    assert {one["metadata"].get("namespace", "cuebook") for one in MANIFESTS.values()} == {kustomization["namespace"]}


def test_the_example_of_the_secret_has_every_key_and_no_value() -> None:
    (secret,) = documents(KUBERNETES / "secrets.example")
    kubernetes_validate.validate(secret, OLDEST, strict=True)
    name = secret["metadata"]["name"]
    used = {value for one in WORKLOADS.values() for value in environment_of(container_of(one)).values()}
    assert {f"{name}/{key}" for key in secret["stringData"]} == {
        value for value in used if value.startswith(f"{name}/")
    }
    assert set(secret["stringData"].values()) == {""}
    assert not [one for one in MANIFESTS.values() if one["kind"] == "Secret"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_commands_and_settings_exist(name: str) -> None:
    container = container_of(WORKLOADS[name])
    environ = environment_of(container)
    words = [re.sub(r"\$\((\w+)\)", lambda found: environ[found[1]], word) for word in container["args"]]
    chosen = check_command(words)
    port, metrics = container["ports"]
    assert f"0.0.0.0:{metrics['containerPort']}" == chosen["metrics"]
    assert chosen["log_format"] == "json"
    assert port["containerPort"] == (chosen["port"] if "port" in chosen else int(chosen["health"].rpartition(":")[2]))
    assert (chosen.get("host") or chosen["health"]).startswith("0.0.0.0")
    check_environment(environ)
    assert urlsplit(environ["CUEBOOK_SERVE_PUBLIC_URL"]).scheme == "https", (
        "the web app answers to it, and links begin with it"
    )
    mounted = [one["mountPath"] for one in container["volumeMounts"]]
    assert environ["CUEBOOK_WORKSPACE"] in mounted
    assert "/tmp" in mounted


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_certificate_of_the_database_is_verified(name: str) -> None:
    pod, container = WORKLOADS[name]["spec"]["template"]["spec"], container_of(WORKLOADS[name])
    chosen = parse_qs(urlsplit(environment_of(container)["CUEBOOK_STORE"]).query)
    assert chosen["sslmode"] == ["verify-full"]
    folder, _, file = chosen["sslrootcert"][0].rpartition("/")
    mount = next(one for one in container["volumeMounts"] if one["mountPath"] == folder)
    volume = next(one for one in pod["volumes"] if one["name"] == mount["name"])
    guide = (DOCS / "guides" / "scale.md").read_text()
    assert f"create configmap {volume['configMap']['name']} --from-file={file}=" in guide
    assert "--from-literal" not in guide + (KUBERNETES / "secrets.example").read_text()


@pytest.mark.parametrize("name", WORKLOADS)
def test_probes_ask_for_health_and_readiness(name: str) -> None:
    container = container_of(WORKLOADS[name])
    port = container["ports"][0]
    wanted = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for probe, path in wanted.items():
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
        assert container[probe]["timeoutSeconds"] > 2  # the store has two seconds to respond


@pytest.mark.parametrize("name", WORKLOADS)
def test_an_upgrade_or_a_drained_node_interrupts_nothing(name: str) -> None:
    workload = WORKLOADS[name]
    spec, pod = workload["spec"], workload["spec"]["template"]["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    budget = next(
        one
        for one in MANIFESTS.values()
        if one["kind"] == "PodDisruptionBudget" and one["spec"]["selector"] == spec["selector"]
    )
    assert 0 < budget["spec"]["minAvailable"] < spec["replicas"]
    container = container_of(workload)
    before = container.get("lifecycle", {}).get("preStop", {}).get("exec", {"command": ["sleep", "0"]})["command"]
    assert pod["terminationGracePeriodSeconds"] >= load().get("worker.drain") + int(before[1]) + 10
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("name", WORKLOADS)
def test_pods_have_as_few_rights_as_possible(name: str) -> None:
    pod: dict[str, Any] = WORKLOADS[name]["spec"]["template"]["spec"]
    container = container_of(WORKLOADS[name])
    user = next(one.text for one in reversed(instructions()) if one.name == "USER")
    context = pod["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert container["resources"]["requests"]
    assert container["resources"]["limits"]["memory"]


def test_the_service_reaches_the_web_pods() -> None:
    service = MANIFESTS["web.yaml: Service"]
    workload = WORKLOADS["web.yaml: Deployment"]
    assert service["spec"]["selector"].items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] == container_of(workload)["ports"][0]["name"]


def test_only_prometheus_reaches_the_metrics() -> None:
    policy = MANIFESTS["metrics.yaml: NetworkPolicy"]["spec"]
    ports = {port["name"] for one in WORKLOADS.values() for port in container_of(one)["ports"]}
    anyone, prometheus = policy["ingress"]
    assert {port["port"] for port in anyone["ports"]} == ports - {"metrics"}
    assert [port["port"] for port in prometheus["ports"]] == ["metrics"]
    assert prometheus["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    for one in WORKLOADS.values():
        assert policy["podSelector"]["matchLabels"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
