"""The manifests of examples/kubernetes, against the schemas that packages of PyPI contain.

scripts/check_manifests.py checks them against an operator's own definitions, which are on no
package index.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kubeflow_trainer_api.models as kubeflow
import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "examples/kubernetes"
VERSION = "1.37"
MODELS = {
    "jobset.x-k8s.io/v1alpha2": "JobsetV1alpha2",
    "trainer.kubeflow.org/v1alpha1": "TrainerV1alpha1",
}


def check_as_kubernetes(resource: dict) -> None:
    kubernetes_validate.validate(resource, VERSION, strict=True)


def contains(whole: object, part: object) -> bool:
    """Returns whether `whole` has all fields of `part`; further ones are defaults."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and contains(whole[name], part[name]) for name in part
        )
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_schema(path: Path):
    for resource in yaml.safe_load_all(path.read_text()):
        version, kind = resource["apiVersion"], resource["kind"]
        if version in MODELS:
            model = getattr(kubeflow, MODELS[version] + kind)
            # A model drops fields that the schema does not have.
            assert contains(model.from_dict(resource).to_dict(), resource)
        elif kind == "MPIJob":  # No package has its schema, except that of the pods.
            for replicas in resource["spec"]["mpiReplicaSpecs"].values():
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, **replicas["template"]}
                check_as_kubernetes(pod)
        else:
            check_as_kubernetes(resource)


def spread_constraints(part: object) -> Iterator[dict]:
    if isinstance(part, dict):
        yield from part.get("topologySpreadConstraints", [])
    if isinstance(part, dict | list):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from spread_constraints(inner)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_nodes_that_admit_no_ranks_do_not_prevent_a_spread(path: Path):
    """Such as the control plane, whose taint the scheduler ignores here by default."""
    for constraint in spread_constraints(list(yaml.safe_load_all(path.read_text()))):
        assert constraint["nodeTaintsPolicy"] == "Honor"
