"""`mccl launch` on hosts where the usual ports are taken."""

import json
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import ssh_hosts
from launching import PATIENCE, environment, program, run
from ssh_hosts import SshHosts

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
USUAL_STORE_PORT = 32321


@pytest.fixture(scope="module")
def pair() -> Iterator[SshHosts]:
    made = SshHosts(2)
    yield made
    made.close()


@contextmanager
def taken(hosts: SshHosts, name: str, port: int) -> Iterator[None]:
    """Occupies the port on the host with a program that listens."""
    text = """
        import socket, sys, time
        held = socket.create_server(("", int(sys.argv[1])))
        print("ready", flush=True)
        time.sleep(1000)
    """
    holder = subprocess.Popen(
        hosts.on(name, "python3", "-c", textwrap.dedent(text), port), stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout.readline() == b"ready\n"
        yield
    finally:
        holder.kill()
        holder.wait()


def job(pair: SshHosts, *flags: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    return run(
        "--ssh-arg=-F", "--ssh-arg", pair.config, "--hosts", "a,b", *flags,
        "--env", "MCCL_TRANSPORT=tcp", program(), "bench", "all_reduce", "--sizes", "1K",
        "--no-bounds", "--seconds", "0.01",
        before=pair.on("desk"), status=status,
    )  # fmt: skip


def test_another_store_port_is_taken_where_the_usual_one_is_not_free(pair: SshHosts):
    with taken(pair, "a", USUAL_STORE_PORT):
        assert "2 ranks" in job(pair).stdout


@pytest.mark.long
def test_a_job_starts_while_doctor_runs(pair: SshHosts):
    """Doctor's probes and the job use different ports, so neither blocks the other."""
    looking = subprocess.Popen(
        pair.on("desk", program(), "doctor", "--ssh-arg=-F", "--ssh-arg", pair.config, "--hosts",
                "a,b", "--measure", "--json"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(),
    )  # fmt: skip
    assert "a: " in looking.stderr.readline() + looking.stderr.readline()
    for _ in range(3):
        assert "2 ranks" in job(pair).stdout
    answer = json.loads(looking.communicate(timeout=PATIENCE)[0])
    assert all(path["connects"] for path in answer["paths"]) and answer["paths"]


def test_a_port_that_was_given_is_kept_and_the_flag_is_named(pair: SshHosts):
    with taken(pair, "a", USUAL_STORE_PORT):
        done = job(pair, "--starting-port", USUAL_STORE_PORT + 2, status=2)
    assert f":{USUAL_STORE_PORT}" in done.stderr and "--starting-port" in done.stderr
