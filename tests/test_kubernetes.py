"""The example for Kubernetes: what its pods are told gives them the right roles."""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tf_rdmabatch.cli import CommandError
from tf_rdmabatch.launch import configure, kubernetes, role
from tf_rdmabatch.launch.cluster import Task

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "kubernetes"


def manifests() -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((EXAMPLES / "job" / "job.yaml").read_text())
    return {document["kind"]: document for document in documents}


def container(job: dict[str, Any]) -> dict[str, Any]:
    (one,) = job["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = one
    return found


def options_of(command: list[str]) -> argparse.Namespace:
    assert command[:2] == ["tf-rdmabatch", "launch"]
    parser = argparse.ArgumentParser()
    configure(parser)
    return parser.parse_args(command[2:])


def pod_environment(job: dict[str, Any], index: int) -> dict[str, str]:
    """Return what Kubernetes sets, and what the manifest does."""
    own = {
        one["name"]: one.get("value", "the token of the Secret") for one in container(job)["env"]
    }
    return own | {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": str(index)}


def pod_task(job: dict[str, Any], index: int, monkeypatch: pytest.MonkeyPatch) -> Task:
    """Return the task that a pod finds itself to be."""
    environment = pod_environment(job, index)
    hostname = f"{job['metadata']['name']}-{index}"
    monkeypatch.setattr(socket, "gethostname", lambda: hostname)
    manager = role.manager_of(environment)
    assert manager == "kubernetes"
    return role.find_task(manager, options_of(container(job)["command"]), environment)


def test_each_pod_has_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    job = manifests()["Job"]
    completions = job["spec"]["completions"]
    tasks = [pod_task(job, i, monkeypatch) for i in range(completions)]
    assert [task.name for task in tasks] == ["chief:0", "ps:0", "worker:0", "worker:1"]
    configs = [json.loads(task.tf_config) for task in tasks]
    assert [config["cluster"] for config in configs] == [
        {
            "chief": ["digits-0.digits:29400"],
            "ps": ["digits-1.digits:29400"],
            "worker": ["digits-2.digits:29400", "digits-3.digits:29400"],
        }
    ] * completions
    assert [config["task"] for config in configs] == [
        {"type": task.job, "index": task.index} for task in tasks
    ]


def test_the_chief_decides_when_the_job_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    job = manifests()["Job"]
    (rule,) = job["spec"]["successPolicy"]["rules"]
    assert pod_task(job, int(rule["succeededIndexes"]), monkeypatch).job == "chief"


def test_the_parts_of_the_manifest_fit_together() -> None:
    service, job = manifests()["Service"], manifests()["Job"]
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    environment = pod_environment(job, 0)
    assert pod["subdomain"] == service["metadata"]["name"] == environment[kubernetes.SERVICE]
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    assert {m["name"] for m in container(job)["volumeMounts"]} == {
        v["name"] for v in pod["volumes"]
    }
    options = options_of(container(job)["command"])
    assert container(job)["ports"][0]["containerPort"] == (options.port or options.default_port)


def test_the_token_is_from_a_secret_and_nowhere_else() -> None:
    job = manifests()["Job"]
    tokens = [e for e in container(job)["env"] if e["name"] == "TF_RDMABATCH_TOKEN"]
    assert [set(token) for token in tokens] == [{"name", "valueFrom"}]
    assert not any("token" in word.lower() for word in container(job)["command"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, which has kustomize")
def test_the_variant_with_a_device() -> None:
    rendered = subprocess.run(
        ["kubectl", "kustomize", str(EXAMPLES / "rdma")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = {one["kind"]: one for one in yaml.safe_load_all(rendered.stdout)}
    plain, device = container(manifests()["Job"]), container(found["Job"])
    assert device["resources"]["limits"] == plain["resources"]["limits"] | {
        "rdma/hca_shared_devices_a": "1"
    }
    assert device["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert device["command"] == plain["command"]


def test_the_variant_changes_a_job_and_a_container_that_are_there() -> None:
    kustomization = yaml.safe_load((EXAMPLES / "rdma" / "kustomization.yaml").read_text())
    (patch,) = kustomization["patches"]
    job = manifests()["Job"]
    assert patch["target"] == {"kind": "Job", "name": job["metadata"]["name"]}
    changed = yaml.safe_load(patch["patch"])
    assert container(changed)["name"] == container(job)["name"]


@pytest.mark.parametrize(
    ("environment", "hostname", "message"),
    [
        ({"JOB_COMPLETION_INDEX": "1"}, "digits-1", "set TF_RDMABATCH_SERVICE to the headless"),
        ({"JOB_COMPLETION_INDEX": "1"}, "digits-2", "is not of a Job whose completionMode is Inde"),
        ({"JOB_COMPLETION_INDEX": "1"}, "digits", "is not of a Job whose completionMode is Index"),
        ({}, "digits-1", "is not of a Job whose completionMode is Indexed"),
        (
            {"JOB_COMPLETION_INDEX": "4", "TF_RDMABATCH_SERVICE": "s"},
            "digits-4",
            "this is pod 4, and the chief, 1 ps and 2 workers are 4 pods: set the Job",
        ),
    ],
)
def test_pods_that_do_not_fit(environment: dict[str, str], hostname: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        kubernetes.task_of(environment, hostname, 2, 1, 29400)
