"""Ranks that meet through an all-gather of the program's own (`all_gather_factory`)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from mlx_processes import SUM, run_ranks

from mccl import _core
from mccl.mlx import side_channel


def all_gather_of(size: int) -> Callable[[int, int], side_channel.AllGather]:
    """Returns a factory for ranks that are threads of this process."""
    barrier = threading.Barrier(size, timeout=60)
    parts: dict[int, bytes] = {}

    def factory(rank: int, of: int) -> side_channel.AllGather:
        assert of == size

        def gather(mine: bytes, length: int) -> bytes:
            assert len(mine) == length
            parts[rank] = mine
            barrier.wait()
            everything = b"".join(parts[rank] for rank in range(size))
            barrier.wait()
            return everything

        return gather

    return factory


def meetings(size: int) -> list[dict[str, str]]:
    factory = all_gather_of(size)
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(lambda rank: side_channel.meet(factory, rank, size), range(size)))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_all_ranks_learn_of_one_port_and_one_key(size: int):
    met = meetings(size)
    assert len({each["root"].rpartition(":")[2] for each in met}) == 1
    assert len({each["job_key"] for each in met}) == 1
    assert len(met[0]["job_key"]) == 64
    for each in met[1:]:
        assert each["root"].rpartition(":")[0].strip("[]") in _core.own_addresses()


def test_the_port_is_free_again():
    port = int(meetings(2)[0]["root"].rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_an_address_at_which_another_job_listens_is_passed_over():
    with side_channel._listening("the key of another job") as port:
        first = {"addresses": ["127.0.0.1"], "port": port, "key": "k"}
        assert side_channel._reached(first) is None
        found = side_channel._reached(first | {"key": "the key of another job"})
        assert str(found) == f"127.0.0.1:{port}"


def test_ranks_that_do_not_reach_rank_0_are_named_on_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_core, "own_addresses", lambda: ["127.0.0.1"])
    monkeypatch.setattr(side_channel, "_reached", lambda first: None)
    factory = all_gather_of(3)

    def error(rank: int) -> str:
        with pytest.raises(RuntimeError) as raised:
            side_channel.meet(factory, rank, 3)
        return str(raised.value)

    with ThreadPoolExecutor(3) as threads:
        for text in threads.map(error, range(3)):
            assert "rank 1, 2 could not reach rank 0 at any of its addresses (127.0.0.1)" in text


@pytest.mark.parametrize(
    ("factory", "expected"),
    [
        (lambda rank, size: None, "it returned NoneType"),
        (lambda rank, size: lambda mine, length: mine, "4096 of each of 2 ranks; found 4096 bytes"),
        (lambda rank, size: lambda mine, length: 7, "found int"),
        (lambda rank, size: lambda mine, length: b"?" * (2 * length), "that no rank has sent"),
    ],
)
def test_what_is_no_all_gather_is_an_error(factory: side_channel.Factory, expected: str):
    with pytest.raises(ValueError, match="all_gather_factory") as raised:
        side_channel.meet(factory, 0, 2)
    assert expected in str(raised.value)


def mutated(message: object, random: Random) -> bytes:
    """Returns bytes like those that a rank sends, with a few changes."""
    odd = [None, True, -1, 0, 65536, 1.5, 10**30, "", "a..b", "\0", "127.0.0.1", [], ["x", 1], {}]
    if isinstance(message, dict) and random.random() < 0.7:
        for key in random.sample(sorted(message), k=min(len(message), random.randrange(3))):
            message = message | {key: random.choice(odd)}
        message = {key: value for key, value in message.items() if random.random() < 0.95}
    elif random.random() < 0.5:
        message = random.choice(odd)
    text = bytearray(json.dumps(message).encode().ljust(4096))
    for _ in range(random.randrange(3) if random.random() < 0.3 else 0):
        text[random.randrange(len(text))] = random.randrange(256)
    return bytes(text)


def test_malformed_messages_of_other_ranks_are_errors():
    """Whatever the function returns, a rank neither hangs nor raises an error of another kind."""
    random = Random(1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # No process listens there.
        offer = {"port": taken.getsockname()[1], "key": "k" * 64, "addresses": ["127.0.0.1"]}
        for _ in range(1000):

            def gather(mine: bytes, length: int) -> bytes:
                first = offer if b"root" not in mine else {"root": "a:1"}
                # The function mostly returns this rank's own message.
                return mutated(first, random) + (mine if random.random() < 0.8 else mine[::-1])

            with pytest.raises((ValueError, RuntimeError)) as raised:
                side_channel.meet(lambda rank, size, gather=gather: gather, 1, 2)
            text = str(raised.value)
            assert "all_gather_factory" in text or "could not reach rank 0" in text, text


#: Gathers through files in the folder that the variable FOLDER names.
FACTORY = """
import pathlib, time
def factory(rank, size):
    folder = pathlib.Path(os.environ["FOLDER"])
    calls = iter(range(1000))
    def gather(mine, length):
        call = next(calls)
        def place(rank):
            return folder / f"{call}-{rank}"
        place(rank).with_suffix(".new").write_bytes(mine)
        place(rank).with_suffix(".new").rename(place(rank))
        while not all(place(other).exists() for other in range(size)):
            time.sleep(0.01)
        return b"".join(place(other).read_bytes() for other in range(size))
    return gather
group = mccl.mlx.init(True, "jaccl", all_gather_factory=factory)
assert mccl.mlx.init(backend="jaccl") is group
"""


def test_jaccl_needs_no_coordinator_then(tmp_path: Path):
    table = tmp_path / "devices.json"
    table.write_text(json.dumps([[None, "rdma0"], ["rdma0", None]]))
    shared = {"MLX_IBV_DEVICES": str(table), "FOLDER": str(tmp_path)}
    environments = [shared | {"MLX_RANK": str(rank)} for rank in range(2)]
    for output, _ in run_ranks(FACTORY + SUM, environments):
        assert output == "3 2\n"
