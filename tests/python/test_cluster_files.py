"""The manifests of examples/kubernetes: each gives its ranks what MCCL reads."""

from pathlib import Path

import pytest
from launching import ROOT
from settings_table import settings_markdown

yaml = pytest.importorskip("yaml")

MANIFESTS = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))


def containers(node: object) -> list[dict]:
    """Returns all containers anywhere in a resource."""
    if isinstance(node, list):
        return [found for part in node for found in containers(part)]
    if not isinstance(node, dict):
        return []
    return node.get("containers", []) + [
        found for name, part in node.items() if name != "containers" for found in containers(part)
    ]


def pods(node: object) -> list[dict]:
    if isinstance(node, list):
        return [found for part in node for found in pods(part)]
    if not isinstance(node, dict):
        return []
    return [node] if "containers" in node else [p for part in node.values() for p in pods(part)]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_ranks_get_a_key_and_known_variables_only(path: Path):
    resources = list(yaml.safe_load_all(path.read_text()))
    variables = {v["name"]: v for c in containers(resources) for v in c.get("env", [])}
    assert variables["MCCL_JOB_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "job-key"
    assert "create secret generic job-key" in path.read_text()
    known = settings_markdown() + "`MCCL_MLX`"
    assert [name for name in variables if f"`{name}`" not in known] == []
    # A service whose name begins with mccl would set variables that MCCL refuses.
    assert all(pod["enableServiceLinks"] is False for pod in pods(resources))


@pytest.mark.parametrize("name", ["jobset.yaml", "trainer-mlx.yaml"])
def test_the_root_is_the_first_pod(name: str):
    resource = next(yaml.safe_load_all((ROOT / "examples/kubernetes" / name).read_text()))
    variables = {v["name"]: v for c in containers(resource) for v in c["env"]}
    spec = resource["spec"]
    (job,) = spec.get("template", {}).get("spec", spec)["replicatedJobs"]
    assert variables["MCCL_ROOT"]["value"] == f"train-{job['name']}-0-0.train:29500"
    size = spec.get("mlPolicy", {}).get("numNodes") or job["template"]["spec"]["completions"]
    assert variables["MCCL_WORLD_SIZE"]["value"] == str(size)
    index = variables["MCCL_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
