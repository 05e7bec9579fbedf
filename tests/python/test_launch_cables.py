"""`mccl launch` over ssh, from a desk that reaches every host, to hosts that only cables join.

They are those of docs/CABLING.md, and so are the files.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import ssh_hosts
from launching import PATIENCE, ROOT, environment, run

pytestmark = pytest.mark.skipif(bool(why := ssh_hosts.missing()), reason=why or "-")

PROGRAMS = Path(__file__).parent / "cabling"
PAGE = (ROOT / "docs/CABLING.md").read_text()
TABLE, HOSTS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
#: Knows nothing of MCCL. A line is one write.
PLAIN_MLX = """
import sys
import mlx.core as mx
world = mx.distributed.init()
total = mx.distributed.all_sum(mx.ones(3) * (world.rank() + 1))
sys.stdout.write(f"{world.rank()} of {world.size()}: {total.tolist()}\\n")
"""
SUMS = [f"{rank} of 4: [10.0, 10.0, 10.0]" for rank in range(4)]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory):
    """a, b, c and d in a ring; `hosts.file` is the page's."""
    made = ssh_hosts.SshHosts(4)
    try:
        made.isolate()
        for one, other, network in (("a", "b", 12), ("b", "c", 23), ("c", "d", 34), ("d", "a", 41)):
            made.join(one, other, f"10.0.{network}")
        made.file = tmp_path_factory.mktemp("desk") / "hosts.json"
        made.file.write_text(HOSTS)
        yield made
    finally:
        made.close()


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    need("mlx")
    script = tmp_path / "plain.py"
    script.write_text(PLAIN_MLX)
    return script


def need(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


def launch(hosts, *arguments: object, file: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The hosts share a kernel, and with it memory: hence MCCL_TRANSPORT."""
    return run(
        "--ssh-arg=-F", "--ssh-arg", hosts.config, "--hostfile", file or hosts.file, "--no-prefix",
        "--python", sys.executable, "--env", "MCCL_TRANSPORT=tcp", "--env", "OMP_NUM_THREADS=1",
        "--env", "MCCL_LOG_LEVEL=INFO", *arguments,
        before=hosts.on("desk"),
    )  # fmt: skip


def goes_along_cables(log: str) -> bool:
    return log.count("INFO  [mccl rank") > 0 and log.count(" 4 cables join the 4 ranks; ") == 4


def test_the_page_has_one_table_and_its_hostfile():
    listed = [[place.rsplit(":")[0] for place in places] for places in json.loads(TABLE)]
    assert [host["ips"] for host in json.loads(HOSTS)] == listed


def test_no_host_reaches_another_but_along_its_cables(hosts):
    def reaches(name: str, address: str) -> bool:
        connect = f"exec 3<>/dev/tcp/{address}/22"
        return ssh_hosts.shell(*hosts.on(name, "timeout", 2, "bash", "-c", connect)).returncode == 0

    assert reaches("desk", hosts.address("a"))
    assert not reaches("b", hosts.address("a"))


def test_plain_mlx_on_its_own_ring(hosts, plain: Path):
    assert sorted(launch(hosts, "--backend", "ring", plain).stdout.splitlines()) == SUMS


def test_plain_mlx_on_mccl(hosts, plain: Path):
    done = launch(hosts, "--backend", "ring", "--mlx", plain)
    assert sorted(done.stdout.splitlines()) == SUMS
    assert goes_along_cables(done.stderr), done.stderr


def test_numpy_between_all_pairs(hosts):
    done = launch(hosts, PROGRAMS / "numpy_pairs.py")
    said = [f"rank {rank}: all pairs, all groups" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == said
    assert goes_along_cables(done.stderr), done.stderr


def test_torch_by_its_own_url(hosts):
    need("torch", "mccl._core")
    done = launch(hosts, PROGRAMS / "torch_training.py")
    said = set(done.stdout.splitlines())
    assert len(said) == 1
    assert said.pop().startswith("weights ")
    assert goes_along_cables(done.stderr), done.stderr


def test_mlx_launch(hosts, tmp_path: Path):
    need("mlx")
    ssh = tmp_path / "ssh"  # it has no flag for ssh's own
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {hosts.config} "$@"\n')
    ssh.chmod(0o755)
    launcher = [
        sys.executable, "-c", "from mlx._distributed_utils.launch import main; main()",
    ]  # fmt: skip
    done = subprocess.run(
        hosts.on(
            "desk", *launcher, "--hostfile", hosts.file, "--backend", "ring",
            "--python", sys.executable, "--env", "MCCL_TRANSPORT=tcp",
            PROGRAMS / "mlx_ring.py",
        ),
        env=environment(PATH=f"{tmp_path}:{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == [
        f"rank {rank} of 4: 6.0 [0, 1, 2, 3]" for rank in range(4)
    ], done.stderr


@pytest.mark.parametrize(
    ("how", "links"),
    [("once", 1), ("--connections-per-ip", 2), ("listed twice", 2)],
)
def test_links_along_a_cable(hosts, tmp_path: Path, how: str, links: int):
    """As many as are asked for, and data goes along each."""
    # Not what is cheapest by what was measured: a tree would send to one neighbour only.
    file, flags = hosts.file, ["--env", "MCCL_ALGORITHM=ring_both"]
    if how == "--connections-per-ip":
        flags += [how, links]
    elif how == "listed twice":
        file = tmp_path / "twice.json"
        twice = [host | {"ips": host["ips"] * 2} for host in json.loads(HOSTS)]
        file.write_text(json.dumps(twice))
    done = launch(hosts, *flags, PROGRAMS / "count_links.py", file=file)
    counted = f"links with data to each neighbour: [{links}, {links}]"
    assert done.stdout.splitlines() == [counted] * 4
    told = re.findall(r"tcp, (\d+) links?, cable", done.stderr)
    assert told == [str(links)] * 8, done.stderr
