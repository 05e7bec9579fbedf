"""`mccl launch` over ssh, from a desk that reaches all hosts, to hosts joined only by cables.

The hosts, cables and files are the example of docs/machines/cables.md.
"""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import ssh_hosts
from launching import PATIENCE, ROOT, environment, program, run

pytestmark = pytest.mark.skipif(bool(why := ssh_hosts.missing()), reason=why or "-")

PROGRAMS = Path(__file__).parent / "cabling"
PAGE = (ROOT / "docs/machines/cables.md").read_text()
TABLE, HOSTS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
#: An MLX program that does not use MCCL. Each line is a single write, which keeps it whole.
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
    """Hosts a to d in a ring of cables. `hosts.file` is the hostfile of docs/machines/cables.md."""
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


def launch(
    hosts, *arguments: object, file: Path | None = None, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Runs `mccl launch` on the desk.

    The hosts share a kernel, so MCCL_TRANSPORT=tcp keeps ranks from using shared memory.
    """
    return run(
        "--ssh-arg=-F", "--ssh-arg", hosts.config, "--hostfile", file or hosts.file, "--no-prefix",
        "--python", sys.executable, "--env", "MCCL_TRANSPORT=tcp", "--env", "OMP_NUM_THREADS=1",
        "--env", "MCCL_LOG_LEVEL=INFO", *arguments,
        before=hosts.on("desk"), status=status,
    )  # fmt: skip


def goes_along_cables(log: str) -> bool:
    return log.count("INFO  [mccl rank") > 0 and log.count(" 4 cables connect the 4 ranks; ") == 4


def test_the_page_has_one_table_and_its_hostfile():
    listed = [[place.rsplit(":")[0] for place in places] for places in json.loads(TABLE)]
    assert [host["ips"] for host in json.loads(HOSTS)] == listed


def test_no_host_reaches_another_but_along_its_cables(hosts):
    def reaches(name: str, address: str) -> bool:
        connect = f"exec 3<>/dev/tcp/{address}/22"
        return ssh_hosts.shell(*hosts.on(name, "timeout", 2, "bash", "-c", connect)).returncode == 0

    assert reaches("desk", hosts.address("a"))
    assert not reaches("b", hosts.address("a"))


@pytest.mark.long
def test_plain_mlx_on_its_own_ring(hosts, plain: Path):
    assert sorted(launch(hosts, "--backend", "ring", plain).stdout.splitlines()) == SUMS


def test_plain_mlx_on_mccl(hosts, plain: Path):
    done = launch(hosts, "--backend", "ring", "--mlx", plain)
    assert sorted(done.stdout.splitlines()) == SUMS
    assert goes_along_cables(done.stderr), done.stderr


def test_a_job_that_fails_names_hosts_that_mlx_on_mccl_has_not_reached(hosts, tmp_path: Path):
    """Ranks 0 to 2 import MLX and then fail, while rank 3 never imports it."""
    need("mlx")
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '3': time.sleep(1000)\n"
        "import mlx.core as mx\n"
        "for rank in range(3):\n"
        f"    open(f'{tmp_path}/{{os.environ[\"RANK\"]}}', 'w').close()\n"
        f"    while not os.path.exists(f'{tmp_path}/{{rank}}'): time.sleep(0.02)\n"
        "sys.exit(3)\n"
    )
    said = launch(hosts, "--mlx", script, status=3).stderr
    assert "when the job failed, --mlx had taken effect in no program on d: " in said
    script.write_text("raise SystemExit(3)\n")
    assert "--mlx had taken effect" not in launch(hosts, "--mlx", script, status=3).stderr


@pytest.mark.long
def test_numpy_between_all_pairs(hosts):
    done = launch(hosts, PROGRAMS / "numpy_pairs.py")
    said = [f"rank {rank}: all pairs, all groups" for rank in range(4)]
    assert sorted(done.stdout.splitlines()) == said
    assert goes_along_cables(done.stderr), done.stderr


@pytest.mark.long
def test_torch_by_its_own_url(hosts):
    need("torch", "mccl._core")
    done = launch(hosts, PROGRAMS / "torch_training.py")
    said = set(done.stdout.splitlines())
    assert len(said) == 1
    assert said.pop().startswith("weights ")
    assert goes_along_cables(done.stderr), done.stderr


ENV_DDP = """
import os, sys
import torch, torch.distributed as dist
import mccl
dist.init_process_group("mccl")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).sum().backward()
norm = sum(p.grad.norm().item() for p in model.parameters())
sys.stdout.write(f"{dist.get_world_size()} {norm:.3f} {os.environ['MASTER_ADDR']}\\n")
dist.destroy_process_group()
"""


@pytest.fixture
def env_ddp(tmp_path: Path) -> Path:
    """A DDP program whose ranks connect through torch's env://, as in most programs."""
    need("torch", "mccl._core")
    script = tmp_path / "ddp.py"
    script.write_text(ENV_DDP)
    return script


@pytest.mark.long
def test_torch_by_its_environment_on_a_ring(hosts, env_ddp: Path):
    """Host c has no cable to a. Host b has one, but a lists the address of its other cable."""
    done = launch(hosts, env_ddp)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {tuple(line[:2]) for line in lines} == {("4", lines[0][1])}
    assert sorted(line[2] for line in lines) == ["10.0.41.2", "10.0.41.2", "127.0.0.1", "127.0.0.1"]
    assert goes_along_cables(done.stderr), done.stderr


@pytest.mark.long
def test_torch_by_its_environment_on_a_chain_from_its_end(hosts, env_ddp: Path, tmp_path: Path):
    """Host c, at the end of the chain a, b, c, has no cable to a."""
    file = tmp_path / "chain.json"
    chain = json.loads(HOSTS)[:3]
    chain[0]["ips"] = ["10.0.12.1"]
    file.write_text(json.dumps(chain))
    done = launch(hosts, env_ddp, file=file)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(line[2] for line in lines) == ["10.0.12.1", "10.0.12.1", "127.0.0.1"]


def test_where_all_hosts_reach_the_first_the_address_stays(hosts, tmp_path: Path):
    file = tmp_path / "two.json"
    two = json.loads(HOSTS)[:2]
    two[0]["ips"] = ["10.0.12.1"]
    file.write_text(json.dumps(two))
    done = launch(hosts, "--", "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT", file=file)
    assert done.stdout.splitlines() == ["10.0.12.1 32322"] * 2


def test_a_host_that_forwards_nothing_is_named(hosts):
    hosts.sshd_options["c"] = ("-o", "AllowStreamLocalForwarding=no")
    hosts.serve_again("c")
    try:
        done = launch(hosts, "--", "sh", "-c", "echo $MASTER_ADDR")
    finally:
        hosts.sshd_options.pop("c")
        hosts.serve_again("c")
    assert re.search(
        r"mccl launch: c: this host does not reach the host of rank 0.*mccl://", done.stderr
    )


def test_a_forwarder_is_for_its_own_user_and_ends_with_its_input(hosts, tmp_path: Path):
    socket_path = tmp_path / "store"
    store = socket.socket(socket.AF_UNIX)
    forwarder = subprocess.Popen(
        hosts.on("c", program(), "forward", "--socket", socket_path, "--port", 5999, "--to",
                 "10.0.12.1"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert forwarder.stdout.readline() == "\n"
    port = int(forwarder.stdout.readline().removeprefix("mccl-forward listening "))
    listening = ssh_hosts.shell(*hosts.on("c", "cat", "/proc/net/tcp")).stdout
    assert f" 0100007F:{port:04X} 00000000:0000 0A " in listening
    # torch connects over IPv6 to an IPv4-mapped address. The kernel lists such a connection in
    # another table, /proc/net/tcp6.
    mapped = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET6)\n"
        f"s.connect(('::ffff:127.0.0.1', {port}))\n"
        "s.sendall(b'ask')\n"
        "print(s.recv(100))"
    )
    ask = (
        "import socket\n"
        f"s = socket.create_connection(('127.0.0.1', {port}))\n"
        "s.sendall(b'ask')\n"
        "print(s.recv(100))"
    )
    for client in (ask, mapped):
        asking = subprocess.Popen(
            hosts.on("c", sys.executable, "-c", client), stdout=subprocess.PIPE, text=True
        )
        if client == ask:
            time.sleep(0.5)  # nothing listens at the socket yet; the client must not notice
            store.bind(str(socket_path))
            store.listen()
        connection, _ = store.accept()
        assert connection.recv(100) == b"ask"
        assert connection.send(b"answer") == 6
        assert asking.communicate(timeout=PATIENCE)[0] == "b'answer'\n"
        connection.close()
    stranger = ssh_hosts.shell(
        *hosts.on("c", "setpriv", "--reuid", 65534, "--clear-groups", "/usr/bin/python3", "-c", ask)
    )
    assert "answer" not in stranger.stdout
    forwarder.stdin.close()
    assert forwarder.wait(timeout=PATIENCE) == 0
    forwarder.stdout.close()
    store.close()


@pytest.mark.long
def test_mlx_launch(hosts, tmp_path: Path):
    need("mlx")
    ssh = tmp_path / "ssh"  # mlx.launch has no flag for ssh options
    ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {hosts.config} "$@"\n')
    ssh.chmod(0o755)
    launcher = [
        sys.executable, "-c", "from mlx._distributed_utils.launch import main; main()",
    ]  # fmt: skip
    done = subprocess.run(
        hosts.on(
            "desk", *launcher, "--hostfile", hosts.file, "--backend", "ring",
            "--python", sys.executable, "--env", "MCCL_TRANSPORT=tcp",
            "--env", f"MCCL_JOB_KEY={uuid.uuid4().hex}", PROGRAMS / "mlx_ring.py",
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
    [
        pytest.param("once", 1, marks=pytest.mark.long),
        ("--connections-per-ip", 2),
        pytest.param("listed twice", 2, marks=pytest.mark.long),
    ],
)
def test_links_along_a_cable(hosts, tmp_path: Path, how: str, links: int):
    """Each neighbour gets as many links as requested, and each link carries data."""
    # The algorithm is fixed, because measurements may favour a tree, in which a rank sends to one
    # neighbour only.
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
