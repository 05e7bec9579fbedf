"""The variables that env:// gets from launchers unknown to torch, and those left unchanged."""

from __future__ import annotations

import os

import pytest
import torch.distributed as dist

from mccl import torch_meeting

TORCHS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
OTHERS = ("MCCL_", "OMPI_", "PMI", "MPI_", "SLURM_", "MLX_")

SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
}
BY_HAND = {"MCCL_RANK": "3", "MCCL_WORLD_SIZE": "4"}


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch):
    """Yields a function that completes an environment with these variables.

    The function returns the variables that torch then finds, and the result of the completion.
    """

    def run(variables: dict[str, str], url: str = "env://") -> tuple[dict[str, str], bool]:
        # Sets every variable that the meeting may set, so that the test restores it at its end.
        for name in TORCHS:
            monkeypatch.setenv(name, "")
        for name in list(os.environ):
            if name in TORCHS or name.startswith(OTHERS):
                monkeypatch.delenv(name)
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        elsewhere = torch_meeting._complete_environment(url)
        found = {name: os.environ[name] for name in TORCHS if name in os.environ}
        return found, elsewhere

    return run


def test_missing_variables_are_taken_from_the_launcher(complete):
    found, elsewhere = complete(SLURM)
    port = found.pop("MASTER_PORT")
    assert found == {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "n1"}
    assert 20000 < int(port) <= 28192 and not elsewhere
    assert complete(SLURM)[0]["MASTER_PORT"] == port, "it must be the same on all ranks"


def test_a_second_group_is_completed_by_the_same_launcher(complete):
    """The first group sets RANK and WORLD_SIZE, which otherwise come from torchrun."""
    first, _ = complete(SLURM)
    again, _ = complete(SLURM | {"RANK": "3", "WORLD_SIZE": "4"})
    assert again == first


def test_torchs_store_needs_a_port_above_that_of_the_root(complete):
    with pytest.raises(ValueError, match="expected a port below 65535"):
        complete(BY_HAND | {"MCCL_ROOT": "10.0.0.1:65535"})


@pytest.mark.parametrize(
    ("root", "address", "port"),
    [("10.0.0.1:29500", "10.0.0.1", "29501"), ("[fd00::1]:29500", "fd00::1", "29501")],
)
def test_the_store_is_one_port_above_mccl_root(complete, root, address, port):
    found, _ = complete(BY_HAND | {"MCCL_ROOT": root})
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == (address, port)


def test_torchs_own_variables_win(complete):
    whole = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1234"}
    assert complete(SLURM | whole) == (whole, False)
    found, _ = complete(SLURM | {"MASTER_ADDR": "a", "MASTER_PORT": "1234", "WORLD_SIZE": "4"})
    assert found.pop("RANK") == "3" and found.pop("LOCAL_RANK") == "1"
    assert found == {"WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1234"}


@pytest.mark.parametrize("given", [{"RANK": "1"}, {"WORLD_SIZE": "8"}])
def test_where_they_disagree_torch_says_what_is_missing(complete, given):
    assert complete(SLURM | given) == (given, False)


def test_ranks_that_the_caller_gives_count(complete):
    found, _ = complete(SLURM, "env://?rank=3&world_size=4")
    assert found.keys() == {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    assert complete(SLURM, "env://?rank=2&world_size=4") == ({}, False)


@pytest.mark.parametrize("more", [{"MCCL_BACKEND": "mpi"}, {"MCCL_HOSTFILE": "/cables.json"}])
def test_where_no_address_leads_to_rank_0_the_ranks_meet_elsewhere(complete, more):
    assert complete(BY_HAND | more) == ({"RANK": "3", "WORLD_SIZE": "4"}, True)


def test_a_launcher_that_sets_only_some_variables_is_named(complete):
    with pytest.raises(ValueError, match=r"RANK, .* not set, and .*OMPI_COMM_WORLD_RANK"):
        complete({"OMPI_COMM_WORLD_RANK": "0"})


def test_without_a_launcher_torch_says_what_it_always_does(complete):
    assert complete({}) == ({}, False)
    for name in TORCHS:
        os.environ.pop(name, None)
    with pytest.raises(ValueError, match="environment variable RANK expected, but not set"):
        dist.init_process_group("mccl")
