"""`mccl doctor` and `mccl config` on hosts that lie, hang, or disappear during the run."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import ssh_hosts
from cabled_hosts import CabledHosts
from launching import PATIENCE, environment, heed_signals, program
from ssh_hosts import shell

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
PAIR = ("--hosts", "a,b")


@pytest.fixture(scope="module")
def pair():
    """Two hosts joined by a cable with addresses."""
    with CabledHosts(2, [("a", "b")]) as made:
        made.give_addresses()
        yield made


@contextmanager
def with_program(hosts: CabledHosts, name: str, folder: Path, **texts: str) -> Iterator[None]:
    """Puts shell scripts with these texts first in the PATH of the host."""
    for file, text in texts.items():
        (folder / file).write_text("#!/bin/sh\n" + text)
        (folder / file).chmod(0o755)
    hosts.with_programs(name, folder)
    try:
        yield
    finally:
        hosts.sshd_options.clear()
        hosts.serve_again(name)


def findings(done: subprocess.CompletedProcess[str]) -> list[str]:
    found = json.loads(done.stdout)["findings"]
    return [f"{f['where']}: {f['what']}" for f in found if f["severity"] != "note"]


# On each call, the probe claims to have heard interfaces whose names are commands.
LIAR = """
def answered(answer):
    if "called" not in answer:
        return [answer]
    odd = [(at, name) for at in ("c0", "cable")
           for name in ("c0;touch${{IFS}}{mark}", "$(touch${{IFS}}{mark})")]
    return [*({{"heard": {{"at": at, "name": 0, "from": name}}}} for at, name in odd), answer]
"""


def test_names_that_a_host_reports_are_never_run_as_commands(pair: CabledHosts, tmp_path: Path):
    """A host claims to have heard an interface whose name is a command. No host may run it."""
    mark = tmp_path / "mark"
    with pair.with_odd_probe("b", tmp_path, LIAR.format(mark=mark)):
        done = subprocess.run(
            [*pair.on("desk", program(), "config", "--ssh-arg=-F", "--ssh-arg", pair.config),
             *PAIR, "--over", "cables", "--output", tmp_path / "hosts.json", "--auto-setup",
             "--yes"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PATIENCE,
        )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert not mark.exists()
    for text in (done.stdout, done.stderr, *(f.read_text() for f in tmp_path.glob("*.undo.sh*"))):
        assert "touch" not in text


@pytest.mark.long
def test_an_interface_whose_name_is_a_command(pair: CabledHosts):
    """Linux allows shell commands as names of interfaces."""
    name = "x;false`"
    pair.ip("b", "link", "add", name, "type", "veth", "peer", "name", "y")
    try:
        found = findings(pair.mccl("doctor", *PAIR, "--json", status=1))
    finally:
        pair.ip("b", "link", "del", name)
    assert len(found) == 1
    assert found[0].startswith("b: the output of /sys/class/net is not understood")


@pytest.mark.parametrize(
    ("last", "what"),
    [
        ("os.kill(os.getppid(), 9); probe.kill(); os.kill(os.getpid(), 9)", "lost"),
        ("time.sleep(1000)", "the host stopped answering"),
    ],
    ids=["killed", "silent"],
)
def test_a_host_that_disappears_during_the_examination(
    pair: CabledHosts, tmp_path: Path, last: str, what: str
):
    gone = f"""
def asked(request):
    if request["do"] == "dial":
        {last}
    return request
"""
    with pair.with_odd_probe("b", tmp_path, gone):
        found = findings(pair.mccl("doctor", *PAIR, "--json", status=1))
    assert len(found) == 1 and found[0].startswith("b: ") and what in found[0]


@pytest.mark.long
def test_invalid_ports_stop_no_probe(pair: CabledHosts, tmp_path: Path):
    """A probe reports invalid ports. An unrejected port 0 would make the other probe exit."""
    odd = """
def answered(answer):
    if "listening" in answer:
        answer["listening"] = {"ports": [0, 99999999999999999999, "x"], "packets": -3}
    return [answer]
"""
    with pair.with_odd_probe("b", tmp_path, odd):
        found = findings(pair.mccl("doctor", *PAIR, "--json", status=1))
    assert found and all(each.startswith("b: ") for each in found)


def test_a_clock_that_shows_no_time(pair: CabledHosts, tmp_path: Path):
    odd = """
def answered(answer):
    if "clock" in answer:
        answer["clock"] = "Sonntag"
    return [answer]
"""
    with pair.with_odd_probe("b", tmp_path, odd):
        found = findings(pair.mccl("doctor", *PAIR, "--json", status=1))
    assert found == ['b: the output of mccl probe is not understood: expected the time; found ""']


ODD_PROBES = {
    "no JSON": "echo Guten Tag; sleep 100",
    "garbage": "head -c 100000 /dev/urandom; sleep 100",
    "too much": "yes | head -c 20000000; sleep 100",
    "an error": "echo 'no library' >&2; exit 3",
    "an old one": "read -r key; echo 'expected a key' >&2; exit 1",
    "nothing": "sleep 100",
}


@pytest.mark.long
@pytest.mark.parametrize("said", ODD_PROBES.values(), ids=ODD_PROBES.keys())
def test_an_mccl_that_does_not_answer_as_it_should(pair: CabledHosts, tmp_path: Path, said: str):
    odd = f'[ "$1" = probe ] || exec {program()} "$@"\n{said}\n'
    with with_program(pair, "b", tmp_path, mccl=odd):
        done = pair.mccl("doctor", *PAIR, "--json", "--patience", 6, status=1)
    (found,) = (f for f in json.loads(done.stdout)["findings"] if f["severity"] != "note")
    assert found["where"] == "b" and found["id"] in ("host-unreachable", "mccl-unusable")
    assert "mccl probe" in found["what"] + found["why"] or "its facts" in found["why"]
    assert "try: ssh" not in found["what"]


def test_an_mccl_of_another_build(pair: CabledHosts, tmp_path: Path):
    other = """
def answered(answer):
    if "protocol" in answer: answer["protocol"] += 1
    return [answer]
"""
    with pair.with_odd_probe("b", tmp_path, other):
        done = pair.mccl("doctor", *PAIR, "--json", status=1)
    assert findings(done) == [
        "b: the host has a different build of mccl, which uses a different protocol"
    ]
    assert "make wheel" in done.stdout


def test_odd_facts_are_reported(pair: CabledHosts, tmp_path: Path):
    odd = """
def answered(answer):
    if "told" in answer:
        answer["told"]["cores"] = "many"
        answer["told"]["interfaces"].append({"name": "$(reboot)"})
    return [answer]
"""
    with pair.with_odd_probe("b", tmp_path, odd):
        found = findings(pair.mccl("doctor", *PAIR, "--json", status=1))
    assert len(found) == 2
    assert all(each.startswith("b: the output of mccl probe is not understood") for each in found)


def test_one_machine_under_two_names(pair: CabledHosts, tmp_path: Path):
    text = pair.config.read_text()
    pair.config.write_text(f"Host twin\n  HostName {pair.address('a')}\n{text}")
    try:
        found = findings(pair.mccl("doctor", "--hosts", "a,twin", "--json", status=1))
        assert found == ["a, twin: these names refer to the same machine"]
        refused = pair.mccl("config", "--hosts", "a,twin", "--json", status=1)
        assert (
            "a, twin: these names refer to the same machine" in json.loads(refused.stdout)["error"]
        )
    finally:
        pair.config.write_text(text)


def test_a_host_that_is_named_twice(pair: CabledHosts, tmp_path: Path):
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps([{"ssh": n, "ips": [pair.address(n)]} for n in "aab"]))
    done = pair.mccl("doctor", "--hostfile", file, "--json")
    assert [host["host"] for host in json.loads(done.stdout)["hosts"]] == ["a", "b"]
    refused = pair.mccl("config", "--hostfile", file, "--json", status=2)
    assert "twice" in json.loads(refused.stdout)["error"]


def test_json_is_valid_when_a_host_cannot_be_queried(pair: CabledHosts):
    pair.use_key("stranger")
    try:
        done = pair.mccl("config", *PAIR, "--json", status=1)
    finally:
        pair.use_key("client")
    assert "some hosts cannot be queried" in json.loads(done.stdout)["error"]


def test_ctrl_c_at_the_question_ends_it(pair: CabledHosts, tmp_path: Path):
    pair.ip("b", "link", "set", "c0", "mtu", 1000)
    command = [*pair.on("desk", program(), "doctor", "--ssh-arg=-F", "--ssh-arg", pair.config)]
    try:
        running = subprocess.Popen(
            [*command, *PAIR, "--fix"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment(),
            preexec_fn=heed_signals,
        )  # fmt: skip
        said = ""
        while "Run these commands?" not in said:
            letter = running.stderr.read(1)
            assert letter, said
            said += letter
        running.send_signal(signal.SIGINT)
        # Its input stays open meanwhile, because an end of input would count as an answer.
        rest = running.stderr.read()
        running.communicate(timeout=PATIENCE)
    finally:
        pair.ip("b", "link", "set", "c0", "mtu", 1500)
    assert running.returncode == 1
    assert "signal 2 (Interrupt) ended the command; nothing was changed" in rest
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_a_command_that_never_ends_is_not_called_undone(pair: CabledHosts, tmp_path: Path):
    """The connection is lost while the command runs, so its outcome is unknown."""
    pair.ip("a", "-4", "addr", "flush", "dev", "c0")
    pair.ip("b", "-4", "addr", "flush", "dev", "c0")
    lost = """
case "$*" in "addr add"*) /sbin/ip "$@"; kill -9 $(ps -o ppid= -p $PPID) $PPID ;; esac
exec /sbin/ip "$@"
"""
    try:
        with with_program(pair, "b", tmp_path, ip=lost):
            done = pair.mccl(
                "config", *PAIR, "--over", "cables", "--output", tmp_path / "hosts.json",
                "--auto-setup", "--yes", status=1,
            )  # fmt: skip
        assert "the connection was lost" in done.stderr
        assert "some completed steps could not be undone" in done.stderr
        # The undo is attempted nevertheless, over another connection.
        assert "c0" not in pair.addresses("a") and "c0" not in pair.addresses("b")
    finally:
        pair.give_addresses()


@pytest.mark.long
def test_sixty_four_hosts_are_queried_at_once(pair: CabledHosts, tmp_path: Path):
    """All 64 names lead to one host, which serves each of them separately."""
    names = [f"h{i}" for i in range(64)]
    text = pair.config.read_text()
    for i, name in enumerate(names):
        text = f"Host {name}\n  HostName {pair.address('a')}\n  SetEnv WHO={i}\n{text}"
    before = pair.config.read_text()
    pair.config.write_text(text)
    pair.sshd_options["a"] = ("-o", "MaxStartups=200", "-o", "MaxSessions=200")
    pair.serve_again("a")
    begin = time.monotonic()
    try:
        done = pair.mccl(
            "doctor", "--hosts", ",".join(names), "--json", "--patience", 100, status=1
        )
    finally:
        pair.config.write_text(before)
        pair.sshd_options.clear()
        pair.serve_again("a")
    assert time.monotonic() - begin < 2 * PATIENCE
    answer = json.loads(done.stdout)
    assert len(answer["hosts"]) == 64 and all(host["reached"] for host in answer["hosts"])
    assert findings(done) == [", ".join(names) + ": these names refer to the same machine"]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit is not installed")
def test_more_hosts_are_queried_than_the_shells_limit_of_files_allows(pair: CabledHosts):
    """Each host takes three open files, so mccl raises its soft limit as far as it may."""
    names = [f"h{i}" for i in range(24)]
    before = pair.config.read_text()
    pair.config.write_text(
        "".join(f"Host {name}\n  HostName {pair.address('a')}\n" for name in names) + before
    )
    pair.sshd_options["a"] = ("-o", "MaxStartups=200", "-o", "MaxSessions=200")
    pair.serve_again("a")
    try:
        done = subprocess.run(
            [*pair.on("desk", "prlimit", "--nofile=40:1000", program(), "doctor", "--ssh-arg=-F",
                      "--ssh-arg", pair.config, "--json", "--hosts", ",".join(names))],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * PATIENCE,
            env=environment(),
        )  # fmt: skip
    finally:
        pair.config.write_text(before)
        pair.sshd_options.clear()
        pair.serve_again("a")
    answer = json.loads(done.stdout)
    assert len(answer["hosts"]) == 24 and all(host["reached"] for host in answer["hosts"])


@pytest.mark.long
def test_a_host_that_answers_slowly_is_waited_for(pair: CabledHosts, tmp_path: Path):
    """A slow host is not faulty.

    Both the probe's start and each of its answers are delayed here.
    """
    slowly = """
time.sleep(2)
def asked(request):
    time.sleep(0.3)
    return request
"""
    with pair.with_odd_probe("b", tmp_path, slowly):
        assert findings(pair.mccl("doctor", *PAIR, "--json")) == []


def test_a_host_of_another_locale(pair: CabledHosts, tmp_path: Path):
    """Programs of the host would print German text and decimal commas without LC_ALL=C."""
    german = 'case "$LC_ALL" in C) ;; *) echo "Kein Treiber" ;; esac'
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{german}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    variables = f"LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 LC_NUMERIC=de_DE.UTF-8 PATH={path}"
    pair.sshd_options["b"] = ("-o", f"SetEnv={variables}")
    pair.serve_again("b")
    try:
        assert findings(pair.mccl("doctor", *PAIR, "--json")) == []
    finally:
        pair.sshd_options.clear()
        pair.serve_again("b")


@pytest.mark.long
def test_a_start_up_file_that_prints_without_a_line_end(pair: CabledHosts, tmp_path: Path):
    noise = pair.folder / "home/.bashrc"
    noise.write_text("printf 'Welcome to b'\n")
    try:
        assert findings(pair.mccl("doctor", *PAIR, "--json")) == []
        assert json.loads(pair.mccl("config", *PAIR, "--json").stdout)["findings"] == []
    finally:
        noise.unlink()


@pytest.mark.long
def test_hosts_by_ipv6_with_a_port_and_a_user(pair: CabledHosts):
    """Neither ssh nor the hostfile mistakes the port for part of the address."""
    desk = pair.space("desk")
    pair.ip("a", "addr", "add", "fd00:78::1/64", "dev", "cable", "nodad")
    shell("ip", "-n", desk, "addr", "add", "fd00:78::100/64", "dev", "net", "nodad")
    before = pair.config.read_text()
    pair.config.write_text(f"Host fd00*\n  HostKeyAlias {pair.address('a')}\n{before}")
    pair.sshd_options["a"] = ("-o", "ListenAddress=[fd00:78::1]:2222")
    pair.serve_again("a")
    named = "root@[fd00:78::1]:2222"
    try:
        done = pair.mccl("doctor", "--hosts", f"{named},b", "--json")
        assert [host["host"] for host in json.loads(done.stdout)["hosts"]] == [named, "b"]
        assert findings(done) == []
        config = pair.mccl("config", "--hosts", f"{named},b", "--json")
        entry = json.loads(config.stdout)["hostfile"]["hosts"][0]
        assert (entry["ssh"], entry["port"]) == ("root@fd00:78::1", 2222)
        # The same host is given twice, under two names.
        twice = pair.mccl("doctor", "--hosts", f"{named},a", "--json", status=1)
        assert findings(twice) == [f"{named}, a: these names refer to the same machine"]
    finally:
        pair.config.write_text(before)
        pair.ip("a", "addr", "del", "fd00:78::1/64", "dev", "cable")
        shell("ip", "-n", desk, "addr", "del", "fd00:78::100/64", "dev", "net")
        pair.sshd_options.clear()
        pair.serve_again("a")


def test_a_hostfile_of_one_host(pair: CabledHosts, tmp_path: Path):
    given = tmp_path / "one.json"
    given.write_text(json.dumps([{"ssh": "a", "ips": [pair.address("a")], "slots": 2}]))
    assert findings(pair.mccl("doctor", "--hostfile", given, "--json")) == []
    file = tmp_path / "hosts.json"
    done = pair.mccl("config", "--hostfile", given, "--output", file, "--json")
    assert findings(done) == [] and json.loads(done.stdout)["setup"] == []
    assert json.loads(file.read_text())["hosts"][0]["slots"] == 2
    # A single host needs no network that it shares with others.
    alone = pair.mccl("config", "--hostfile", given, "--over", "ethernet", "--json")
    assert findings(alone) == [] and json.loads(alone.stdout)["hostfile"]["hosts"]


def test_the_other_hosts_do_not_wait_for_one_that_floods(pair: CabledHosts, tmp_path: Path):
    flood = 'yes "$(printf "NVIDIA %01000d" 0)" | head -c 30000000\n'
    with with_program(pair, "b", tmp_path, **{"nvidia-smi": flood}):
        done = pair.mccl("doctor", *PAIR, "--json", status=1)
    assert any(each.startswith("b: the output of ") for each in findings(done))


def started(pair: CabledHosts, command: str, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*pair.on("desk", program(), command, "--ssh-arg=-F", "--ssh-arg", pair.config),
         *PAIR, *map(str, words)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(), preexec_fn=heed_signals,
    )  # fmt: skip


def read_until(running: subprocess.Popen[str], text: str) -> None:
    for line in running.stderr:
        if text in line:
            return
    pytest.fail(f"it ended without {text!r}")


@contextmanager
def silent(pair: CabledHosts, name: str, mark: str) -> Iterator[None]:
    """The connection to the host is accepted, but nothing answers."""
    text = pair.config.read_text()
    pair.config.write_text(f"Host {name}\n  ProxyCommand sleep {mark}\n{text}")
    try:
        yield
    finally:
        pair.config.write_text(text)


def commands() -> list[list[str]]:
    return [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]


def test_an_ssh_that_never_answers_is_given_up(pair: CabledHosts):
    with silent(pair, "b", "71234.5"):
        done = pair.mccl("doctor", *PAIR, "--json", "--patience", 8, status=1)
    assert findings(done) == ["b: the host cannot be queried"]
    assert "the host did not answer in 8 s" in done.stdout
    assert ["sleep", "71234.5"] not in commands()


def test_ctrl_c_ends_a_waiting_examination(pair: CabledHosts):
    with silent(pair, "b", "71234.6"):
        running = started(pair, "config", "--patience", 1000)
        read_until(running, "mccl config: a: ")
        running.send_signal(signal.SIGINT)
        rest = running.communicate(timeout=PATIENCE)[1]
    assert running.returncode == 1 and "signal 2 (Interrupt) ended the command" in rest
    assert ["sleep", "71234.6"] not in commands()


def test_the_undo_script_takes_back_half_a_set_up(pair: CabledHosts, tmp_path: Path):
    """The set-up was killed half way, so it can no longer undo its steps itself."""
    for name in "ab":
        pair.ip(name, "-4", "addr", "flush", "dev", "c0")
    before = [pair.addresses(name) for name in "ab"]
    hangs = 'case "$*" in "addr add"*) /sbin/ip "$@"; exec sleep 1000 ;; esac; exec /sbin/ip "$@"'
    try:
        with with_program(pair, "b", tmp_path, ip=hangs):
            running = started(pair, "config", "--over", "cables", "--auto-setup", "--yes",
                              "--output", tmp_path / "hosts.json")  # fmt: skip
            read_until(running, "mccl config: b: ip addr add")
            deadline = time.monotonic() + PATIENCE
            while " 192.168." not in pair.addresses("b") or " 192.168." not in pair.addresses("a"):
                assert time.monotonic() < deadline
            running.kill()
            running.communicate()
        undo = pair.on("desk", "sh", tmp_path / "hosts.json.undo.sh")
        subprocess.run(undo, capture_output=True, timeout=PATIENCE)
        assert [pair.addresses(name) for name in "ab"] == before
    finally:
        pair.give_addresses()
