"""Hosts without a network, joined only by cables between some of them."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import wired_hosts
from launching import BUILD, program
from wired_hosts import WiredHosts

pytestmark = pytest.mark.skipif(bool(why := wired_hosts.missing()), reason=why)

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "cabling"
BENCH = (program(), "bench", "--no-bounds")


def ring(size: int) -> list[tuple[int, int]]:
    return [(rank, (rank + 1) % size) for rank in range(size)]


SHAPES = {
    "ring of 3": (3, ring(3), {}),
    "ring of 4": (4, ring(4), {}),
    "ring of 8": (8, ring(8), {}),
    "ring of 3, two cables per pair": (3, ring(3) * 2, dict.fromkeys(range(3, 6), "200mbit")),
    "ring of 4, two cables per pair": (4, ring(4) * 2, dict.fromkeys(range(4, 8), "200mbit")),
    "ring of 8, two cables per pair": (8, ring(8) * 2, dict.fromkeys(range(8, 16), "200mbit")),
    "line": (4, [(0, 1), (1, 2), (2, 3)], {}),
    "star": (5, [(0, 1), (0, 2), (0, 3), (0, 4)], {}),
    "mesh minus one cable": (4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)], {}),
    "ring in another order": (6, [(0, 3), (3, 1), (1, 4), (4, 2), (2, 5), (5, 0)], {}),
}  # fmt: skip


def wrong_rows(table: str) -> list[str]:
    rows = [line.split() for line in table.splitlines() if line and not line.startswith("#")]
    assert len(rows) > 10, table
    return [" ".join(row) for row in rows if row[-2] not in ("0", "-")]


#: The shapes of make test. They include a ring and relays; other tests use several cables per pair.
FEW_SHAPES = {"ring of 3", "line", "mesh minus one cable"}


@pytest.mark.parametrize(
    "shape",
    [pytest.param(name, marks=[] if name in FEW_SHAPES else pytest.mark.long) for name in SHAPES],
)
def test_every_collective_is_correct(shape: str) -> None:
    """The cables have unequal rates."""
    size, cables, rates = SHAPES[shape]
    with WiredHosts(size, cables, rates) as hosts:
        table = hosts.bench(
            "all", "sendrecv", "--sizes", "8,64K,1M", "--iterations", "2", "--warmup", "1"
        )
        assert wrong_rows(table) == []


def test_cables_that_join_all_ranks_are_no_network_with_a_switch() -> None:
    """The cables are measured one by one, so the ring is used in both directions."""
    with WiredHosts(3, ring(3)) as hosts:
        small = (*BENCH, "all_reduce", "--sizes", "8", "--iterations", "1")
        for process in hosts.start_all(*small, MCCL_LOG_LEVEL="INFO"):
            _, err = process.communicate(timeout=wired_hosts.PATIENCE)
            assert process.returncode == 0, err
            assert len(re.findall(r"INFO .* the cable between rank .* Gbit/s\n", err)) == 3, err


@pytest.fixture(scope="module")
def desk():
    """Four machines in a ring of cables, without any other network."""
    with WiredHosts(4, ring(4)) as hosts:
        yield hosts


def test_all_pairs_and_groups_of_numpy(desk: WiredHosts) -> None:
    for rank, out in enumerate(desk.run(sys.executable, PROGRAMS / "numpy_pairs.py")):
        assert out == f"rank {rank}: all pairs, all groups\n"


def test_mlx_on_the_hostfile_of_its_ring(desk: WiredHosts) -> None:
    processes = [
        desk.start(
            rank, sys.executable, PROGRAMS / "mlx_ring.py",
            MLX_RANK=str(rank), MLX_HOSTFILE=str(desk.hostfile),
            MCCL_RANK="-1", MCCL_WORLD_SIZE="-1", MCCL_HOSTFILE="",
        )
        for rank in range(4)
    ]  # fmt: skip
    for rank, process in enumerate(processes):
        out, err = process.communicate(timeout=wired_hosts.PATIENCE)
        assert (out, process.returncode) == (f"rank {rank} of 4: 6.0 [0, 1, 2, 3]\n", 0), err


def test_ranks_listen_at_their_ends_of_cables_only(desk: WiredHosts) -> None:
    """Ranks do not listen at other addresses of their hosts, such as that of Wi-Fi."""
    for rank in range(4):
        lay = ("ip", "-n", desk.space(rank), "link", "add", "wifi", "type", "dummy")
        wired_hosts.shell(*lay)
        wired_hosts.shell(
            "ip", "-n", desk.space(rank), "addr", "add", "10.99.0.1/24", "dev", "wifi"
        )
        wired_hosts.shell("ip", "-n", desk.space(rank), "link", "set", "wifi", "up")
    processes = desk.start_all(sys.executable, PROGRAMS / "endless.py", "sums")
    try:
        assert [process.stdout.readline() for process in processes] == ["begun\n"] * 4
        for rank in range(4):
            listed = wired_hosts.shell(
                "ip", "netns", "exec", desk.space(rank), "ss", "-ltnH"
            ).stdout.splitlines()  # fmt: skip
            heard_at = {line.split()[3].rpartition(":")[0] for line in listed}
            ends = {desk.end(c, rank) for c, ends in enumerate(desk.cables) if rank in ends}
            assert heard_at == ends, listed
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_hostfile_with_a_loopback_name_excludes_no_rank() -> None:
    """On Debian, a host's own name resolves to a loopback address."""
    with WiredHosts(3, ring(3)) as hosts:
        table = json.loads(hosts.hostfile.read_text())
        table[0] = ["localhost:5100", "localhost:5100", *table[0]]
        hosts.hostfile.write_text(json.dumps(table))
        assert wrong_rows(hosts.bench("all", "--sizes", "8,64K", "--iterations", "2")) == []


def test_two_hosts_use_both_cables_though_each_names_its_end_of_one(tmp_path: Path) -> None:
    """`mlx.distributed_config` writes such a hostfile for two hosts."""
    with WiredHosts(2, [(0, 1), (1, 0)]) as hosts:
        counted = hosts.run(sys.executable, PROGRAMS / "count_links.py")
        assert counted == ["links with data to each neighbour: [1, 1]\n"] * 2
        crossed = [
            [f"{hosts.end(0, 0)}:5100", f"{hosts.end(1, 0)}:5101"],
            [f"{hosts.end(1, 1)}:5102", f"{hosts.end(0, 1)}:5103"],
        ]
        hosts.hostfile.write_text(json.dumps(crossed))
        counted = hosts.run(sys.executable, PROGRAMS / "count_links.py")
        assert counted == ["links with data to each neighbour: [1, 1]\n"] * 2


@pytest.mark.long
def test_training_with_torch(desk: WiredHosts) -> None:
    outs = desk.run(sys.executable, PROGRAMS / "torch_training.py")
    assert all(out == outs[0] for out in outs), outs
    assert outs[0].startswith("weights "), outs


def lines_of_ends(processes: list[subprocess.Popen]) -> list[str]:
    """Returns the last error line of each process, except those that the test has killed."""
    ended = [process.communicate(timeout=wired_hosts.PATIENCE) for process in processes]
    told = [err.strip().splitlines()[-1:] for _, err in ended]
    return [
        line[0] if line else ""
        for line, process in zip(told, processes, strict=True)
        if process.returncode != -signal.SIGKILL
    ]


def begin(hosts: WiredHosts, what: str, **settings: str) -> list[subprocess.Popen]:
    ranks = hosts.start_all(sys.executable, PROGRAMS / "endless.py", what, **settings)
    for process in ranks:
        assert process.stdout.readline() == "begun\n", process.communicate()
    return ranks


@pytest.mark.parametrize("what", ["sums", pytest.param("messages", marks=pytest.mark.long)])
def test_a_relay_that_dies_is_named(what: str) -> None:
    with WiredHosts(4, ring(4)) as hosts:
        ranks = begin(hosts, what)
        ranks[1].kill()
        ends = lines_of_ends(ranks)
        assert len(ends) == 3
        assert all("rank 1" in line for line in ends), "\n".join(ends)


def test_news_of_a_failure_bypasses_a_stopped_rank() -> None:
    with WiredHosts(4, ring(4)) as hosts:
        ranks = hosts.start_all(sys.executable, PROGRAMS / "beside_a_stopped_rank.py")
        ends = lines_of_ends([ranks[rank] for rank in (0, 2, 3)])
        assert all("rank 2 aborted the group: it has had enough" in line for line in ends), ends


@pytest.mark.parametrize(
    "what",
    ["sums", *(pytest.param(what, marks=pytest.mark.long) for what in ("messages", "elsewhere"))],
)
def test_a_cable_that_is_cut_is_named_with_both_ends(what: str) -> None:
    with WiredHosts(4, ring(4)) as hosts:
        ranks = begin(hosts, what, MCCL_LIVENESS_INTERVAL="2")
        hosts.unplug(1)
        cable = f"the cable between rank 1 ({hosts.end(1, 1)}) and rank 2 ({hosts.end(1, 2)})"
        ends = lines_of_ends(ranks)
        assert all(cable in line for line in ends), "\n".join(ends)


@pytest.mark.parametrize("fault", ["cut", "reset"])
def test_a_cable_or_connections_that_break_for_a_while_cost_no_data(fault: str) -> None:
    """The cable in the middle of a line carries relayed connections, and those of its two ends."""
    with WiredHosts(4, [(0, 1), (1, 2), (2, 3)]) as hosts:
        ranks = hosts.start_all(sys.executable, PROGRAMS / "checked_rounds.py")
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        if fault == "cut":
            hosts.unplug(1)
            time.sleep(8)  # the length of the cut
            hosts.plug_in(1)
        elif not hosts.reset(1):
            pytest.skip("this kernel does not reset connections on request")
        ended = [process.communicate("enough\n", wired_hosts.PATIENCE) for process in ranks]
        assert all(process.returncode == 0 for process in ranks), ended
        assert len({out for out, _ in ended}) == 1, ended
        # After a cut, TCP may recover by itself.
        assert fault == "cut" or any("was replaced" in err for _, err in ended), ended


@pytest.mark.parametrize(
    "shape", ["two hosts", pytest.param("a line with relays", marks=pytest.mark.long)]
)
def test_a_job_outlives_each_cable_of_a_pair(shape: str) -> None:
    """Each cable is cut for longer than the interval, the second when the first works again."""
    size, cables = (2, [(0, 1)] * 2) if shape == "two hosts" else (4, [(0, 1), (1, 2), (2, 3)] * 2)
    with WiredHosts(size, cables) as hosts:
        ranks = hosts.start_all(
            sys.executable, PROGRAMS / "checked_rounds.py",
            MCCL_LIVENESS_INTERVAL="2", MCCL_LOG_LEVEL="INFO",
        )  # fmt: skip
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        logs = []
        for cable in (0, len(cables) // 2):
            hosts.unplug(cable)
            logs += until(ranks[0], f"rank 1 ({hosts.end(cable, 1)}) is interrupted")
            time.sleep(2)  # the cut lasts longer than the interval
            hosts.plug_in(cable)
            if cable == 0:  # the control connection has a detour, and returns
                logs += until(ranks[1], f"new connection is tcp {hosts.end(cable, 1)}")
            time.sleep(2)  # the cable works for longer than the interval
        ended = [process.communicate("enough\n", wired_hosts.PATIENCE) for process in ranks]
        assert all(process.returncode == 0 for process in ranks), (logs, ended)


def test_a_job_outlives_two_of_three_cables() -> None:
    """The second cable is cut while links of the first one use it."""
    with WiredHosts(2, [(0, 1)] * 3) as hosts:
        ranks = hosts.start_all(
            sys.executable, PROGRAMS / "one_way.py",
            MCCL_LIVENESS_INTERVAL="4", MCCL_LOG_LEVEL="INFO",
        )  # fmt: skip
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        hosts.unplug(0)
        logs = until(ranks[0], "is interrupted")
        hosts.unplug(1)
        logs += until(ranks[0], "is interrupted")
        ended = [process.communicate("enough\n", wired_hosts.PATIENCE) for process in ranks]
        assert all(process.returncode == 0 for process in ranks), (logs, ended)
        assert ended[0][0] == ended[1][0], ended


def test_a_death_beside_a_cut_cable_is_noticed_at_once() -> None:
    """The rank is stopped when it is killed, so its host resets the connections."""
    with WiredHosts(2, [(0, 1)] * 2) as hosts:
        ranks = hosts.start_all(sys.executable, PROGRAMS / "checked_rounds.py")
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        hosts.unplug(0)
        time.sleep(3)  # the length of the cut before the death
        ranks[1].send_signal(signal.SIGSTOP)
        time.sleep(0.5)  # rank 0 sends meanwhile
        ranks[1].kill()
        killed = time.monotonic()
        _, err = ranks[0].communicate(timeout=wired_hosts.PATIENCE)
        assert "rank 1 is gone: " in err and time.monotonic() - killed < 3, err


@pytest.mark.parametrize("cut", [0, 1])
def test_a_link_at_a_listed_address_continues_at_the_other_one(cut: int) -> None:
    """Each rank lists its two addresses. The ranks use no hostfile."""
    with WiredHosts(2, [(0, 1)] * 2) as hosts:
        ranks = [
            hosts.start(
                rank, sys.executable, PROGRAMS / "checked_rounds.py",
                MCCL_HOSTFILE="", MCCL_ROOT=f"{hosts.end(1 - cut, 0)}:29611",
                MCCL_LISTEN_ADDR=f"{hosts.end(0, rank)},{hosts.end(1, rank)}",
                MCCL_LIVENESS_INTERVAL="2", MCCL_LOG_LEVEL="INFO",
            )
            for rank in range(2)
        ]  # fmt: skip
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        hosts.unplug(cut)
        logs = until(ranks[1], f"new connection is tcp {hosts.end(1 - cut, 1)}")
        time.sleep(3)  # the cut lasts longer than the interval
        hosts.plug_in(cut)
        logs += until(ranks[1], f"new connection is tcp {hosts.end(cut, 1)}")
        ended = [process.communicate("enough\n", wired_hosts.PATIENCE) for process in ranks]
        assert all(process.returncode == 0 for process in ranks), (logs, ended)


def until(process: subprocess.Popen, words: str) -> list[str]:
    """Returns the lines of the process's log up to one that contains the words."""
    lines = []
    limit = threading.Timer(wired_hosts.PATIENCE, process.kill)
    limit.start()
    try:
        for line in process.stderr:
            lines.append(line)
            if words in line:
                return lines
    finally:
        limit.cancel()
    raise AssertionError(f"no line says {words!r}: {lines}")


def test_the_last_message_of_a_rank_survives_a_break_behind_a_relay() -> None:
    """The relay acknowledges the message, holds it during the cut, and then loses it."""
    with WiredHosts(4, [(0, 1), (1, 2), (2, 3)]) as hosts:
        ranks = hosts.start_all(sys.executable, PROGRAMS / "last_message.py")
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        hosts.unplug(1)
        ranks[3].stdin.write("\n")
        ranks[3].stdin.flush()
        time.sleep(3)  # the length of the cut
        assert ranks[3].poll() is None, "rank 3 must stay until rank 0 has the message"
        if not hosts.reset(2):
            pytest.skip("this kernel does not reset connections on request")
        hosts.plug_in(1)
        assert ranks[0].stdout.readline() == "heard\n", ranks[0].communicate()
        ended = [process.communicate("\n", wired_hosts.PATIENCE) for process in ranks]
        assert all(process.returncode == 0 for process in ranks), ended


@pytest.fixture(scope="module")
def elastic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list]:
    """The command of a rank that goes on with replacements, in each language."""
    target = tmp_path_factory.mktemp("cabling") / "elastic"
    library = BUILD / "src"
    subprocess.run(
        ["c++", "-std=c++20", f"-I{ROOT / 'include'}", PROGRAMS / "elastic.cpp", "-o", target,
         f"-L{library}", "-lmccl", f"-Wl,-rpath,{library.resolve()}"],
        check=True,
    )  # fmt: skip
    return {"C++": [target], "NumPy": [sys.executable, PROGRAMS / "elastic.py"]}


@pytest.mark.parametrize("language", ["C++", pytest.param("NumPy", marks=pytest.mark.long)])
@pytest.mark.parametrize("dead", [0, 2], ids=["the store dies", "a relay dies"])
def test_a_replacement_joins_along_the_cables(elastic: dict, language: str, dead: int) -> None:
    command = elastic[language]
    with WiredHosts(4, ring(4)) as hosts:
        ranks = hosts.start_all(*command)
        for process in ranks:
            assert process.stdout.readline() == "begun\n", process.communicate()
        ranks[dead].kill()
        ranks[dead].wait()
        ranks[dead] = hosts.start(dead, *command, "replacement")
        ended = [process.communicate(timeout=wired_hosts.PATIENCE) for process in ranks]
        assert all(out.endswith("4 ranks\n") for out, _ in ended), ended


def test_a_rank_that_starts_again_while_others_wait_is_found_again() -> None:
    """The hostfile lists only rank 2's end of its cable to rank 1, so rank 1 must dial again."""
    small = (*BENCH, "all_reduce", "--sizes", "8", "--iterations", "1")
    with WiredHosts(4, [(0, 1), (1, 2), (2, 3)]) as hosts:
        ranks = [hosts.start(rank, *small) for rank in (0, 1)]
        first = hosts.start(2, *small, MCCL_LOG_LEVEL="DEBUG")
        assert any("rank 1 " in line and line.endswith(" is connected\n") for line in first.stderr)
        first.kill()
        first.wait()
        ranks += [hosts.start(rank, *small) for rank in (2, 3)]
        for process in ranks:
            _, err = process.communicate(timeout=wired_hosts.PATIENCE)
            assert process.returncode == 0, err


def test_an_interface_that_is_named_keeps_no_cable_out() -> None:
    with WiredHosts(3, [(0, 1), (1, 2)]) as hosts:
        small = (*BENCH, "all_reduce", "--sizes", "8", "--iterations", "1")
        ranks = [hosts.start(rank, *small, MCCL_IFNAME=f"c{rank // 2}") for rank in range(3)]
        for process in ranks:
            _, err = process.communicate(timeout=wired_hosts.PATIENCE)
            assert process.returncode == 0, err


def test_unconnected_parts_are_reported() -> None:
    with WiredHosts(4, [(0, 1), (2, 3)]) as hosts:
        ends = lines_of_ends(hosts.start_all(*BENCH, MCCL_CONNECT_TIMEOUT="2"))
        for rank, line in enumerate(ends):
            here, there = ("0, 1", "2, 3") if rank < 2 else ("2, 3", "0, 1")
            assert f"ranks {here} are connected, but no cable leads from them" in line
            assert f" to ranks {there}" in line


def test_another_key_keeps_a_rank_out() -> None:
    with WiredHosts(3, [(0, 1), (1, 2)]) as hosts:
        ranks = [
            hosts.start(
                rank, *BENCH, MCCL_CONNECT_TIMEOUT="2",
                MCCL_JOB_KEY="the key of this job" if rank != 2 else "another key altogether",
            )
            for rank in range(3)
        ]  # fmt: skip
        ends = lines_of_ends(ranks)
        assert "no cable leads from rank 2 to ranks 0, 1" in ends[2], ends
        assert "does it have the same MCCL_JOB_KEY?" in ends[1], ends
        assert all("no cable leads from them to rank 2" in line for line in ends[:2]), ends


def test_two_ranks_at_one_address_are_refused_by_all() -> None:
    with WiredHosts(3, ring(3)) as hosts:
        table = json.loads(hosts.hostfile.read_text())
        hosts.hostfile.write_text(json.dumps([table[0], table[1], table[1]]))
        for line in lines_of_ends(hosts.start_all(*BENCH)):
            assert "ranks 1 and 2 have the same address" in line


def test_a_hostfile_of_other_machines_is_refused() -> None:
    with WiredHosts(3, ring(3)) as hosts:
        table = json.loads(hosts.hostfile.read_text())
        hosts.hostfile.write_text(json.dumps([*table, ["10.99.0.1:5000"]]))
        for line in lines_of_ends(hosts.start_all(*BENCH)):
            assert "has the addresses of 4 ranks, but the job has 3" in line


def test_a_finished_rank_still_relays_for_others() -> None:
    """The middle one of three ranks in a line ends at once while the others continue."""
    with WiredHosts(3, [(0, 1), (1, 2)]) as hosts:
        started = time.monotonic()
        outs = hosts.run(sys.executable, PROGRAMS / "early_end.py")
        assert outs == ["0: 200 messages\n", "1: done\n", "2: 200 messages\n"]
        assert time.monotonic() - started < wired_hosts.PATIENCE


@pytest.mark.parametrize("slow", [0, 1])
def test_of_two_cables_that_look_alike_the_faster_one_is_taken(slow: int) -> None:
    """Both cables claim 10 Gbit/s, and no hostfile says that both should be used."""
    with WiredHosts(2, [(0, 1), (0, 1)], {slow: "20mbit"}) as hosts:
        ranks = hosts.start_all(
            *BENCH, "all_reduce", "--sizes", "1M", "--iterations", "3", "--warmup", "1",
            MCCL_HOSTFILE="", MCCL_ROOT=f"{hosts.end(0, 0)}:29611",
            MCCL_LOG_LEVEL="DEBUG",
        )  # fmt: skip
        ended = [process.communicate(timeout=wired_hosts.PATIENCE) for process in ranks]
        told = "\n".join(out + err for out, err in ended)
        assert all(process.returncode == 0 for process in ranks), told
        [line] = re.findall(r"rank 0: equivalent routes: .*", told)
        assert line.count(" us, ") == 2
        taken = 1 - slow
        assert line.endswith(f"links use c{taken}, to {hosts.end(taken, 0)}"), told
        made = re.findall(r"connection \d+, to rank 0 \(collectives.*", told)
        assert hosts.end(taken, 1) in made[-1], told
