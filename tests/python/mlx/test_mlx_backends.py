"""The choice of a process's job from its environment. These tests start no processes."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mccl import _core
from mccl.config import MCCLConfig
from mccl.mlx import backends

NOTHING = {name: str(value) for name, value in MCCLConfig().to_dict().items()}


def hostfile(folder: Path, content: object) -> str:
    path = folder / "hosts.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def ring(folder: Path, content: object, rank: object = 0) -> backends.Job:
    return backends.ring(
        {"MLX_RANK": str(rank), "MLX_HOSTFILE": hostfile(folder, content)}, NOTHING
    )


def refusal_of(call) -> backends.Refusal:
    with pytest.raises(backends.Refusal) as raised:
        call()
    return raised.value


FOUR = [[f"10.0.0.{rank + 1}:500{rank}"] for rank in range(4)]


@pytest.mark.parametrize("rank", range(4))
def test_a_rank_of_a_ring_listens_at_its_own_address(tmp_path: Path, rank: int):
    settings = ring(tmp_path, FOUR, rank).settings
    assert (settings["rank"], settings["world_size"]) == (str(rank), "4")
    assert settings["root"] == "10.0.0.1:5000"
    assert settings["listen_addr"] == f"10.0.0.{rank + 1}"
    # Rank 0's only port serves the rendezvous. The other ranks listen at their own ports.
    port = int(settings["port_base"]) + rank if settings["port_base"] != "0" else 0
    assert port == (0 if rank == 0 else 5000 + rank)


def test_several_addresses_of_a_rank(tmp_path: Path):
    hosts = [
        ["10.0.0.1:5000", "10.0.1.1:5001"],
        ["10.0.0.2:6000", "10.0.1.2:6000", "10.0.0.2:6001"],
    ]
    first, second = (ring(tmp_path, hosts, rank).settings for rank in range(2))
    assert first["listen_addr"] == "10.0.0.1,10.0.1.1"
    assert first["port_base"] == "5001"
    assert second["listen_addr"] == "10.0.0.2,10.0.1.2,10.0.0.2"
    assert second["port_base"] == "5999"


@pytest.mark.parametrize("verbose", ["1", "0", ""])
def test_a_verbose_ring_logs_more_whatever_the_value(tmp_path: Path, verbose: str):
    environment = {"MLX_RANK": "0", "MLX_HOSTFILE": hostfile(tmp_path, FOUR)}
    assert "log_level" not in backends.ring(environment, NOTHING).settings
    environment["MLX_RING_VERBOSE"] = verbose
    assert backends.ring(environment, NOTHING).settings["log_level"] == "INFO"
    of_a_job = environment | {"MCCL_RANK": "0", "MCCL_WORLD_SIZE": "1"}
    told = NOTHING | {"rank": "0", "world_size": "1"}
    assert backends.mccl(of_a_job, told).settings == {"log_level": "INFO"}
    assert backends.mccl(of_a_job, told | {"log_level": "DEBUG"}).settings == {}


def test_ipv6_addresses_and_host_names(tmp_path: Path):
    settings = ring(tmp_path, [["[fd00::1]:5000"], ["studio.local:5000"]], 1).settings
    assert settings["root"] == "[fd00::1]:5000"
    assert settings["listen_addr"] == "studio.local"


@pytest.mark.parametrize(
    ("content", "rank", "expected"),
    [
        ("[[", 0, "is not JSON"),
        ("", 1, "is not JSON"),
        ({}, 0, "an empty object"),
        ([], 0, "an empty list"),
        ("7", 0, "found 7"),
        ({"hosts": []}, 0, "expected [["),
        ([["a:1"], []], 0, "rank 1: expected a list of one or more"),
        ([["a:1"], "b:2"], 0, 'rank 1: expected a list of one or more "host:port"; found "b:2"'),
        ([{"ssh": "a", "ips": ["b"]}], 0, "is for mlx.launch"),
        ([["a:1"], ["b"]], 0, 'rank 1: expected "host:port"'),
        ([["a:1"], ["b:x"]], 0, 'found "b:x"'),
        ([["a:1"], ["b:0"]], 0, "a port from 1 to 65535"),
        ([["a:1"], ["b:65536"]], 0, "a port from 1 to 65535"),
        ([["a:1"], [7]], 0, "found 7"),
        ([[":1"]], 0, 'found ":1"'),
        (FOUR, 4, "has 4 ranks, 0 to 3"),
        (FOUR, -1, "MLX_RANK: expected an integer from 0; found '-1'"),
        (FOUR, "one", "MLX_RANK: expected an integer from 0; found 'one'"),
    ],
)
def test_a_bad_hostfile_or_rank(tmp_path: Path, content: object, rank: object, expected: str):
    refusal = refusal_of(lambda: ring(tmp_path, content, rank))
    assert expected in str(refusal)
    assert str(refusal).startswith("ring: ")
    assert not refusal.absent


def test_a_missing_hostfile_is_an_error(tmp_path: Path):
    environment = {"MLX_RANK": "0", "MLX_HOSTFILE": str(tmp_path / "none.json")}
    refusal = refusal_of(lambda: backends.ring(environment, NOTHING))
    assert "cannot be read: No such file" in str(refusal)
    assert not refusal.absent


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=12),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    )
)
def test_any_json_is_a_job_or_a_refusal(tmp_path_factory, document: object):
    try:
        job = ring(tmp_path_factory.mktemp("hosts"), document)
    except backends.Refusal as refusal:
        assert str(refusal).startswith("ring: ")
    else:
        assert job.alone or job.settings["rank"] == "0"


def test_without_its_variables_ring_is_absent():
    assert refusal_of(lambda: backends.ring({}, NOTHING)).absent


@pytest.mark.parametrize("missing", ["MLX_RANK", "MLX_HOSTFILE"])
def test_half_a_ring(tmp_path: Path, missing: str):
    environment = {"MLX_RANK": "0", "MLX_HOSTFILE": hostfile(tmp_path, FOUR)}
    del environment[missing]
    refusal = refusal_of(lambda: backends.ring(environment, NOTHING))
    assert f"{missing} is not" in str(refusal)
    assert not refusal.absent


def test_a_rank_of_another_backend_is_no_ring():
    environment = {"MLX_RANK": "0", "MLX_JACCL_COORDINATOR": "10.0.0.1:5000"}
    assert refusal_of(lambda: backends.ring(environment, NOTHING)).absent


@pytest.mark.parametrize(
    ("settings", "absent", "expected"),
    [
        ({}, True, "neither MCCL_RANK nor MCCL_WORLD_SIZE"),
        ({"rank": "0"}, False, "MCCL_WORLD_SIZE is not"),
        ({"world_size": "2"}, False, "MCCL_RANK is not"),
        ({"rank": "0", "world_size": "2"}, False, "MCCL_ROOT is not set"),
        ({"rank": "2", "world_size": "2", "root": "a:1"}, False, "rank 2, as set by MCCL"),
    ],
)
def test_settings_that_describe_no_job(settings: dict, absent: bool, expected: str):
    refusal = refusal_of(lambda: backends.mccl({}, NOTHING | settings))
    assert expected in str(refusal)
    assert refusal.absent == absent


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({"rank": "0", "world_size": "1"}, {}),
        ({"rank": "0", "world_size": "1"}, {"SOMETHING": "\udcff"}),
        (
            {},
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
        ),
        ({}, {"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}),
    ],
)
def test_settings_and_launchers_that_describe_a_job(settings: dict, environment: dict):
    assert backends.mccl(environment, NOTHING | settings).backend == "mccl"


def test_half_a_launcher():
    refusal = refusal_of(lambda: backends.mccl({"RANK": "1"}, NOTHING))
    assert "WORLD_SIZE" in str(refusal)
    assert not refusal.absent


def test_a_blank_hostfile_is_a_job_of_one(tmp_path: Path):
    """`mlx.launch -n 1` writes such a hostfile."""
    assert ring(tmp_path, "\n").alone
    assert "is not JSON" in str(refusal_of(lambda: ring(tmp_path, "\n", 1)))
    assert not ring(tmp_path, FOUR).alone


MESH = [[None, "a", ["b"]], ["a", None, "c"], ["b", "c", None]]


RING = [
    [None, "a", None, "b"],
    ["a", None, "b", None],
    [None, "a", None, "b"],
    ["a", None, "b", None],
]
LINE = [
    [None, "a", None, "b"],
    ["a", None, "b", None],
    [None, "a", None, None],
    ["a", None, None, None],
]


def jaccl_environment(folder: Path, table: object = MESH, **changes: str) -> dict[str, str]:
    path = folder / "devices.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    environment = {
        "MLX_RANK": "1",
        "MLX_JACCL_COORDINATOR": "10.0.0.1:5000",
        "MLX_IBV_DEVICES": str(path),
    }
    return {name: text for name, text in (environment | changes).items() if text}


def nccl_environment(**changes: str) -> dict[str, str]:
    environment = {
        "MLX_RANK": "1",
        "MLX_WORLD_SIZE": "3",
        "NCCL_HOST_IP": "10.0.0.1",
        "NCCL_PORT": "5000",
    }
    return {name: text for name, text in (environment | changes).items() if text}


def test_the_variables_of_jaccl_and_nccl_are_a_place_to_meet(tmp_path: Path):
    place = {"rank": "1", "world_size": "3", "root": "10.0.0.1:5000"}
    environment = jaccl_environment(tmp_path)
    job = backends.jaccl(environment, NOTHING)
    assert job.settings == place | {"rdma_device": environment["MLX_IBV_DEVICES"]}
    assert job.slower == ""  # the engine warns if the devices cannot be used
    job = backends.nccl(nccl_environment(), NOTHING)
    assert job.settings == place
    assert job.on_gpu == mx.cuda.is_available()
    assert job.on_gpu or "MLX was built without CUDA, or finds no" in job.slower
    job = backends.nccl(nccl_environment(MLX_NCCL_TIMEOUT="1500"), NOTHING)
    assert job.settings == place | {"connect_timeout": "1.5"}
    for wrong in ("soon", "0", "-1", "99999999999999"):
        with pytest.raises(backends.Refusal, match="MLX_NCCL_TIMEOUT: expected milliseconds"):
            backends.nccl(nccl_environment(MLX_NCCL_TIMEOUT=wrong), NOTHING)
    job = backends.nccl(nccl_environment(NCCL_HOST_IP="fd00::1"), NOTHING)
    assert job.settings["root"] == "[fd00::1]:5000"
    environment = jaccl_environment(tmp_path, MLX_JACCL_COORDINATOR="[fd00::1]:5000")
    assert backends.jaccl(environment, NOTHING).settings["root"] == "[fd00::1]:5000"


@pytest.mark.parametrize("name", ["MLX_JACCL_RING", "JACCL_RING"])
def test_jaccl_s_ring_whatever_the_value(tmp_path: Path, name: str):
    for table in (RING, MESH):
        for value in ("1", "0", ""):
            environment = jaccl_environment(tmp_path, table) | {name: value}
            job = backends.jaccl(environment, NOTHING)
            assert job.settings["rdma_ring"] == "true"
        job = backends.jaccl(jaccl_environment(tmp_path, table), NOTHING)
        assert "rdma_ring" not in job.settings


def test_jaccl_that_meets_by_other_means_needs_no_coordinator(tmp_path: Path):
    environment = jaccl_environment(tmp_path)
    del environment["MLX_JACCL_COORDINATOR"]

    def meet(rank: int, size: int) -> dict[str, str]:
        return {"root": f"10.0.0.{rank}:{size}", "job_key": "k"}

    settings = backends.jaccl(environment, NOTHING, meet).settings
    assert (settings["root"], settings["job_key"]) == ("10.0.0.1:3", "k")
    del environment["MLX_IBV_DEVICES"]
    assert refusal_of(lambda: backends.jaccl(environment, NOTHING, meet)).absent


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_mpi_with_one_process_is_absent(name: str):
    started = {"PMIX_RANK": "0", "PMI_RANK": "0"}
    assert "single process" in str(
        refusal_of(lambda: backends.mpi({**started, name: "1"}, NOTHING))
    )
    assert refusal_of(lambda: backends.mpi({**started, name: "1"}, NOTHING)).absent
    assert backends.mpi({**started, name: "2"}, NOTHING).settings == {"backend": "mpi"}


def test_what_a_machine_has_by_backend(monkeypatch: pytest.MonkeyPatch):
    from mccl.mlx import is_available

    assert [is_available(name) for name in ("any", "ring", "mccl", "gloo")] == [True] * 3 + [False]
    for has in (True, False):
        monkeypatch.setattr(_core, "has_active_rdma", lambda settings, has=has: has)
        monkeypatch.setattr(_core, "has_mpi", lambda environment, has=has: has)
        monkeypatch.setitem(backends.NEEDS, "nccl", lambda has=has: has)
        assert [is_available(name) for name in ("jaccl", "mpi", "nccl")] == [has] * 3


def test_this_machine_has_what_mlx_finds_of_it(monkeypatch: pytest.MonkeyPatch):
    from mccl.mlx import is_available

    for name in ("any", "ring", "mpi", "nccl"):
        assert is_available(name) == mx.distributed.is_available(name), name
    monkeypatch.setenv("MPI_LIBNAME", "libnone.so")
    assert not is_available("mpi")
    if not Path("/sys/class/infiniband").exists():
        assert not is_available("jaccl")


def test_mccl_s_twins_of_jaccl_s_variables(tmp_path: Path):
    path = jaccl_environment(tmp_path)["MLX_IBV_DEVICES"]
    twins = NOTHING | {"rank": "2", "root": "10.0.0.9:1", "rdma_device": path, "rdma_ring": "true"}
    settings = backends.jaccl({}, twins).settings
    assert settings == {
        "rank": "2",
        "world_size": "3",
        "root": "10.0.0.9:1",
        "rdma_device": path,
        "rdma_ring": "true",
    }
    # MLX's variables take precedence, and MCCL's replace those that are missing.
    settings = backends.jaccl({"MLX_RANK": "1", "MLX_IBV_DEVICES": path}, twins).settings
    assert (settings["rank"], settings["root"]) == ("1", "10.0.0.9:1")
    # MCCL's variables select jaccl only if all three are set.
    for name in ("rank", "root", "rdma_device"):
        assert refusal_of(lambda n=name: backends.jaccl({}, twins | {n: NOTHING[n]})).absent
    assert refusal_of(lambda: backends.jaccl({}, twins | {"rdma_device": "mlx5_0"})).absent


def test_variables_of_jaccl_take_precedence(tmp_path: Path):
    environment = jaccl_environment(tmp_path, JACCL_RANK="2", JACCL_COORDINATOR="10.0.0.9:1")
    settings = backends.jaccl(environment, NOTHING).settings
    assert (settings["rank"], settings["root"]) == ("2", "10.0.0.9:1")


@pytest.mark.parametrize(
    ("changes", "table", "expected"),
    [
        ({"MLX_RANK": ""}, MESH, "is set, but MLX_RANK is not"),
        ({"MLX_IBV_DEVICES": ""}, MESH, "MLX_IBV_DEVICES is not"),
        ({"MLX_JACCL_COORDINATOR": ""}, MESH, "MLX_JACCL_COORDINATOR is not"),
        ({"MLX_RANK": "3"}, MESH, "has 3 ranks, 0 to 2"),
        ({"MLX_RANK": "x"}, MESH, "MLX_RANK: expected an integer from 0; found 'x'"),
        ({"MLX_JACCL_COORDINATOR": "10.0.0.1"}, MESH, "expected host:port of rank 0"),
        ({"MLX_IBV_DEVICES": "/nowhere"}, MESH, "cannot be read"),
        ({}, "{", "line 1, column 2: expected a list for each rank; found the end of the file"),
        ({}, [[None, "a"], ["a"]], "a list for each rank"),
        ({}, {}, "a list for each rank, with an entry for each rank; found {}"),
        ({}, [], "found []"),
        ({}, LINE, "neither a mesh, with a device from every rank to every other, nor a ring"),
        ({"MLX_JACCL_RING": "1"}, LINE, "rank 2  -     a     .        MISSING"),
    ],
)
def test_invalid_variables_of_jaccl(tmp_path: Path, changes: dict, table: object, expected: str):
    environment = jaccl_environment(tmp_path, table, **changes)
    refusal = refusal_of(lambda: backends.jaccl(environment, NOTHING))
    assert str(refusal).startswith("jaccl: ")
    assert expected in str(refusal)
    assert not refusal.absent


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"MLX_RANK": ""}, "is set, but MLX_RANK is not"),
        ({"NCCL_PORT": "", "NCCL_HOST_IP": ""}, "NCCL_HOST_IP and NCCL_PORT are not"),
        ({"MLX_WORLD_SIZE": "0"}, "MLX_WORLD_SIZE"),
        ({"MLX_RANK": "3"}, "has 3 ranks, 0 to 2"),
        ({"NCCL_PORT": "70000"}, "a port from 1 to 65535"),
    ],
)
def test_invalid_variables_of_nccl(changes: dict, expected: str):
    refusal = refusal_of(lambda: backends.nccl(nccl_environment(**changes), NOTHING))
    assert str(refusal).startswith("nccl: ")
    assert expected in str(refusal)
    assert not refusal.absent


@pytest.mark.parametrize(
    ("name", "reason"),
    [("jaccl", "neither "), ("nccl", "neither "), ("mpi", "this process was not started by ")],
)
def test_without_their_variables_backends_are_absent(name: str, reason: str):
    for environment in ({}, {"MLX_RANK": "0"}):
        refusal = refusal_of(lambda e=environment: backends.BACKENDS[name](e, NOTHING))
        assert refusal.absent
        assert str(refusal).startswith(f"{name}: {reason}")


def test_mpi_is_what_mpirun_and_srun_start():
    job = backends.mpi({"OMPI_COMM_WORLD_SIZE": "2"}, NOTHING)
    assert (job.backend, job.settings) == ("mpi", {"backend": "mpi"})
    ours = NOTHING | {"rank": "0", "world_size": "1"}
    assert refusal_of(lambda: backends.mpi({}, ours)).absent
    assert backends.mpi({}, NOTHING | {"backend": "mpi"}).backend == "mpi"


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK"])
def test_mpi_is_the_job_of_its_launcher(variable: str):
    assert backends.mpi({variable: "2"}, NOTHING) == backends.Job("mpi", {"backend": "mpi"})
    refusal = refusal_of(lambda: backends.mpi({}, NOTHING))
    assert refusal.absent
    assert "mpirun" in str(refusal)
    assert backends.mpi({}, NOTHING | {"backend": "mpi"}).backend == "mpi"


def test_a_rank_or_world_size_of_mccl_puts_mccl_first():
    assert backends.order_of_any(NOTHING) == ["ring", "jaccl", "nccl", "mccl", "mpi"]
    assert backends.order_of_any(NOTHING | {"rank": "0"})[:2] == ["mccl", "ring"]
    assert backends.order_of_any(NOTHING | {"world_size": "2"})[:2] == ["mccl", "ring"]
    assert sorted(backends.order_of_any(NOTHING)) == sorted(backends.BACKENDS)


def test_names():
    for name in ("any", *backends.BACKENDS):
        assert backends.require_known(name) == name
    with pytest.raises(ValueError, match="expected one of any, ring, jaccl, nccl, mccl, mpi"):
        backends.require_known("gloo")
