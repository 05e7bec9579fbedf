"""`mccl forward`, which mccl launch starts on hosts that may not reach the host of rank 0."""

import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from launching import environment, program

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux names the owner of a connection"
)
PATIENCE = 60
#: A multicast address, to which a TCP connection fails at once.
NOWHERE = "224.0.0.1"


def forward(path: Path) -> list[str]:
    return [str(program()), "forward", "--socket", str(path), "--port", "5999", "--to", NOWHERE]


def test_a_path_that_is_too_long_for_a_socket_is_an_error(tmp_path: Path):
    path = tmp_path / ("x" * 120)
    done = subprocess.run(
        forward(path), input="", capture_output=True, text=True, timeout=PATIENCE, env=environment()
    )
    assert done.returncode == 2
    assert "expected a path of at most 107 bytes" in done.stderr and str(path) in done.stderr


def test_connections_wait_while_there_are_no_descriptors(tmp_path: Path):
    def allow_few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))

    path = tmp_path / "store"
    forwarder = subprocess.Popen(
        forward(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment(), preexec_fn=allow_few_files,
    )  # fmt: skip
    clients = []
    try:
        assert forwarder.stdout.readline() == "\n"
        port = int(forwarder.stdout.readline().removeprefix("mccl-forward listening "))
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        times = psutil.Process(forwarder.pid).cpu_times
        time.sleep(0.5)
        before = times()
        time.sleep(1)
        after = times()
        assert after.user + after.system - before.user - before.system < 0.3
        for client in clients[:-1]:
            client.close()
        assert clients[-1].send(b"ask") == 3
        with socket.socket(socket.AF_UNIX) as store:
            store.settimeout(PATIENCE)
            store.bind(str(path))
            store.listen()
            asked = b""
            while asked != b"ask":  # the closed connections may arrive, too
                connection, _ = store.accept()
                with connection:
                    connection.settimeout(PATIENCE)
                    asked = connection.recv(3)
    finally:
        for client in clients:
            client.close()
        _, errors = forwarder.communicate(timeout=PATIENCE)
    assert forwarder.returncode == 0
    assert errors.count("for now, but keeps trying: Too many open files") == 1
    assert "this process may open 16 files" in errors
