"""Jobs whose connections are encrypted: what an eavesdropper sees, and which ranks are refused."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from free_port import free_port
from launching import PATIENCE, environment, program

#: Bytes that the ranks send, and that must not be seen on the way.
MARK = b"the weights of the model"

BROADCAST = f"""
    import mccl.distributed as dist
    import numpy as np

    world = dist.init()
    data = np.frombuffer({MARK!r} * 1000, dtype=np.uint8).copy()
    if world.rank != 0:
        data[:] = 0
    data = world.broadcast(data, root=0)
    assert data.tobytes() == {MARK!r} * 1000
    assert world.all_reduce(world.rank + 1) == 3
    world.barrier()
    print("done")
"""


def start_rank(rank: int, root: str, **settings: str) -> subprocess.Popen:
    place = {"MCCL_RANK": str(rank), "MCCL_WORLD_SIZE": "2", "MCCL_ROOT": root}
    common = {"MCCL_TRANSPORT": "tcp", "MCCL_PORT_BASE": "0", "MCCL_CONNECT_TIMEOUT": "30"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(BROADCAST)],
        env=environment(**(common | place | settings)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_pair(first: dict[str, str], second: dict[str, str]) -> list[tuple[int, str, str]]:
    """Runs two ranks, each with settings of its own. Returns the status and the output of each."""
    root = f"127.0.0.1:{free_port()}"
    ranks = [start_rank(0, root, **first), start_rank(1, root, **second)]
    done = []
    for rank in ranks:
        try:
            out, err = rank.communicate(timeout=PATIENCE)
        finally:
            rank.kill()
        done.append((rank.returncode, out, err))
    return done


def check_done(ranks: list[tuple[int, str, str]]) -> None:
    for status, out, err in ranks:
        assert (status, out) == (0, "done\n"), err


@contextmanager
def packets_of_loopback() -> Iterator[list[bytes]]:
    """Collects the packets that pass the loopback interface meanwhile."""
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    except (AttributeError, PermissionError):
        pytest.skip("needs root on Linux, to read packets")
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    tap.bind(("lo", 0))
    tap.settimeout(0.2)
    packets: list[bytes] = []
    over = threading.Event()

    def listen() -> None:
        while True:
            try:
                packets.append(tap.recv(1 << 17))
            except TimeoutError:
                if over.is_set():
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield packets
    finally:
        over.set()
        thread.join()
        tap.close()


@pytest.mark.parametrize("encryption", ["off", "on"])
def test_an_eavesdropper_sees_data_only_without_encryption(encryption: str):
    key = secrets.token_hex(32)
    settings = {"MCCL_ENCRYPTION": encryption, "MCCL_JOB_KEY": key}
    with packets_of_loopback() as packets:
        check_done(run_pair(settings, settings))
    assert len(packets) > 10
    assert any(MARK in packet for packet in packets) == (encryption == "off")
    assert not any(key.encode() in packet or bytes.fromhex(key) in packet for packet in packets)


def test_ranks_of_one_user_on_one_host_need_no_key():
    check_done(run_pair({"MCCL_ENCRYPTION": "on"}, {"MCCL_ENCRYPTION": "on"}))


@pytest.mark.parametrize(
    ("first", "second"), [("on", "off"), pytest.param("off", "on", marks=pytest.mark.long)]
)
def test_a_downgrade_is_refused_with_the_reason(first: str, second: str):
    key = {"MCCL_JOB_KEY": secrets.token_hex(32), "MCCL_CONNECT_TIMEOUT": "5"}
    ranks = run_pair({"MCCL_ENCRYPTION": first} | key, {"MCCL_ENCRYPTION": second} | key)
    assert all(status != 0 for status, _, _ in ranks), ranks
    assert f"encryption (rank 0 has {first}, rank 1 has {second})" in ranks[0][2], ranks[0][2]
    assert f"encryption (rank 1 has {second}, rank 0 has {first})" in ranks[1][2], ranks[1][2]


def test_no_key_gives_no_encryption():
    settings = {"MCCL_ENCRYPTION": "on", "MCCL_REQUIRE_KEY": "0"}
    for status, _, err in run_pair(settings, settings):
        assert status != 0
        assert "MCCL_ENCRYPTION is on and needs a key" in err


def test_the_key_is_in_no_log():
    key = secrets.token_hex(32)
    settings = {"MCCL_ENCRYPTION": "on", "MCCL_JOB_KEY": key, "MCCL_LOG_LEVEL": "TRACE"}
    ranks = run_pair(settings, settings)
    check_done(ranks)
    for _, out, err in ranks:
        assert "encrypted tcp" in err
        assert key not in out + err


class Site:
    """An authority of certificates in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-keyout", self._path("ca.key"),
            "-out", self._path("ca.pem"),
        )  # fmt: skip

    def _path(self, what: str) -> str:
        return str(self.folder / f"{self.name}-{what}")

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    def settings(self, rank: str) -> dict[str, str]:
        """Makes a certificate, and returns the settings of a rank that has it."""
        key, request, certificate = (self._path(f"{rank}.{end}") for end in ("key", "csr", "pem"))
        self._openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", f"/CN={rank}", "-keyout", key, "-out", request,
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", request, "-days", "2", "-CA", self._path("ca.pem"),
            "-CAkey", self._path("ca.key"), "-CAcreateserial", "-out", certificate,
        )  # fmt: skip
        return {
            "MCCL_ENCRYPTION": "on",
            "MCCL_TLS_CERT": certificate,
            "MCCL_TLS_KEY": key,
            "MCCL_TLS_CA": self._path("ca.pem"),
        }


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs the program openssl")
def test_certificates_of_one_authority_are_required(tmp_path: Path):
    key = {"MCCL_JOB_KEY": secrets.token_hex(32), "MCCL_CONNECT_TIMEOUT": "5"}
    site, other = Site(tmp_path, "site"), Site(tmp_path, "other")
    check_done(run_pair(site.settings("rank0") | key, site.settings("rank1") | key))
    for status, _, err in run_pair(site.settings("rank0") | key, other.settings("rank1") | key):
        assert status != 0, err
    by_key = {"MCCL_ENCRYPTION": "on"} | key
    ranks = run_pair(site.settings("rank0") | key, by_key)
    assert "encryption_by (rank 1 has job key, rank 0 has certificates)" in ranks[1][2], ranks[1][2]


def test_a_missing_certificate_is_named(tmp_path: Path):
    settings = {"MCCL_ENCRYPTION": "on", "MCCL_TLS_CERT": str(tmp_path / "none.pem")}
    for status, _, err in run_pair(settings, settings):
        assert status != 0
        assert "MCCL_TLS_CERT: cannot use the file" in err


def test_the_key_is_in_no_error_and_in_no_report(tmp_path: Path):
    """A rank that fails, its record of calls, and what the programs say about it."""
    key = secrets.token_hex(32)
    settings = {
        "MCCL_JOB_KEY": key, "MCCL_ENCRYPTION": "on", "MCCL_CONNECT_TIMEOUT": "2",
        "MCCL_LOG_LEVEL": "TRACE", "MCCL_FLIGHT_RECORDER_FILE": str(tmp_path),
    }  # fmt: skip
    said = []
    for status, out, err in run_pair(settings, settings | {"MCCL_WORLD_SIZE": "3"}):
        assert status != 0
        said += [out, err]
    for words in (["doctor", "--json"], ["status"], ["launch", "-n", "2", "--dry-run", "true"]):
        done = subprocess.run(
            [program(), *words], env=environment(**settings), capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        said += [done.stdout, done.stderr]
    said += [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(said) >= 10
    assert not any(key in text for text in said)
