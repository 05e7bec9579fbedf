"""Ray Train and ray.util.collective on a cluster of two nodes, which are both on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import ray
from ray.cluster_utils import Cluster
from running import EXAMPLES, run


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=2)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def example(cluster: Cluster, name: str) -> str:
    return run(sys.executable, EXAMPLES / name, RAY_ADDRESS=cluster.address)


def test_train_places_a_rank_on_each_node(cluster: Cluster):
    assert "2 ranks on mccl and 2 nodes: [2.0, 2.0, 2.0]" in example(cluster, "with_ray.py")


def test_example_of_collectives(cluster: Cluster):
    output = example(cluster, "with_ray_collective.py")
    assert "2 ranks: [3.0, 3.0, 3.0] [3.0, 3.0, 3.0]" in output


@pytest.fixture
def results(cluster: Cluster) -> Iterator[list[dict]]:
    """Returns the results of every call on each rank of a group of two."""

    # Pickled by value, because it is local; the workers cannot import this module.
    @ray.remote(num_cpus=1)
    def call(rank: int, name: str) -> dict:
        import numpy as np
        import torch
        from ray.util import collective
        from ray.util.collective.types import ReduceOp

        import mccl  # noqa: F401

        collective.init_collective_group(2, rank, backend="mccl", group_name=name)
        got = {"place": (collective.get_rank(name), collective.get_collective_group_size(name))}

        mine = np.full(2, rank + 2.0)
        for op in ReduceOp:
            got[op.name] = x = mine.copy()
            collective.allreduce(x, name, op)
        got["reduce"] = x = torch.from_numpy(mine.copy()).to(torch.bfloat16)
        collective.reduce(x, 1, name)
        got["broadcast"] = x = mine.copy()
        collective.broadcast(x, 1, name)
        got["allgather"] = x = [np.zeros(2), np.zeros(2)]
        collective.allgather(x, mine, name)
        got["reducescatter"] = x = np.zeros(2)
        collective.reducescatter(x, [mine, mine * 10], name)
        got["sendrecv"] = x = mine.copy()
        collective.send(x, 1, name) if rank == 0 else collective.recv(x, 0, name)
        collective.barrier(name)
        collective.destroy_collective_group(name)
        return {
            k: [list(map(float, y)) for y in v] if k == "allgather" else list(map(float, v))
            for k, v in got.items()
        }

    ray.init(address=cluster.address)
    try:
        # The second group has the name of the first.
        for _ in range(2):
            made = ray.get([call.remote(rank, "pair") for rank in range(2)])
        yield made
    finally:
        ray.shutdown()


def test_every_collective(results: list[dict]):
    for rank, got in enumerate(results):
        assert got == {
            "place": [rank, 2],
            "SUM": [5, 5],
            "PRODUCT": [6, 6],
            "MIN": [2, 2],
            "MAX": [3, 3],
            "reduce": [5, 5] if rank == 1 else [2, 2],
            "broadcast": [3, 3],
            "allgather": [[2, 2], [3, 3]],
            "reducescatter": [5 * 10**rank] * 2,
            "sendrecv": [2, 2],
        }


def test_a_group_can_be_made_after_an_attempt_that_failed(cluster: Cluster):
    @ray.remote(num_cpus=1)
    class Rank:
        def join(self, rank: int) -> str:
            from ray.util import collective

            import mccl  # noqa: F401

            try:
                collective.init_collective_group(2, rank, backend="mccl", group_name="again")
            except Exception as error:
                return str(error)
            return "joined"

    ray.init(
        address=cluster.address,
        runtime_env={
            "env_vars": {"MCCL_CONNECT_TIMEOUT": "5", "MCCL_JOB_KEY": "a key of the test"}
        },
    )
    try:
        assert "rank 1" in ray.get(Rank.remote().join.remote(0))
        # Nothing of the failed attempt is left that misleads rank 1.
        assert "rank 0 did not join" in ray.get(Rank.remote().join.remote(1))
        ranks = [Rank.remote() for _ in range(2)]
        assert ray.get([actor.join.remote(n) for n, actor in enumerate(ranks)]) == ["joined"] * 2
    finally:
        ray.shutdown()
