"""`mccl probe`, used directly: what it sends, which messages it accepts, and when it ends."""

import json
import queue
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest
import ssh_hosts
from cabled_hosts import CabledHosts
from launching import PATIENCE, environment, program

pytestmark = pytest.mark.skipif(bool(ssh_hosts.missing()), reason=ssh_hosts.missing() or "-")
KEY = "0123456789abcdef" * 4
CALLS = 29599


class Probe:
    """A probe that listens on a host."""

    def __init__(self, hosts: CabledHosts, name: str, key: str = KEY) -> None:
        self.process = subprocess.Popen(
            hosts.on(name, program(), "probe"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment(),
        )  # fmt: skip
        self.answers: queue.Queue[dict] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.ask(do="listen", key=key)
        self.listening = self.answer("listening")

    def _read(self) -> None:
        for line in self.process.stdout:
            self.answers.put(json.loads(line))

    def ask(self, **request: object) -> None:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self, kind: str, patience: float = PATIENCE) -> dict:
        """Returns the next answer of that kind and drops all answers before it."""
        limit = time.monotonic() + patience
        while True:
            answer = self.answers.get(timeout=max(0.001, limit - time.monotonic()))
            if kind in answer:
                return answer[kind]

    def all_answers(self) -> list[dict]:
        """Returns the answers received so far."""
        return [self.answers.get() for _ in range(self.answers.qsize())]

    def dial(self, to: str, port: int) -> dict:
        self.ask(do="dial", id=0, to=to, port=port)
        return self.answer("dialled")

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=PATIENCE)


@pytest.fixture(scope="module")
def hosts() -> Iterator[CabledHosts]:
    """Three hosts. Cables join a to b (c0) and c to b (c1)."""
    with CabledHosts(3, [("a", "b"), ("c", "b")]) as made:
        made.give_addresses()
        yield made


@pytest.fixture
def pair(hosts: CabledHosts) -> Iterator[tuple[Probe, Probe]]:
    """Probes on hosts a and b."""
    probes = [Probe(hosts, name) for name in "ab"]
    yield tuple(probes)
    for probe in probes:
        probe.close()


def script(hosts: CabledHosts, name: str, text: str, *words: object) -> subprocess.Popen[str]:
    """Starts a Python program on a host, with pipes as its standard input and output."""
    return subprocess.Popen(
        hosts.on(name, "python3", "-u", "-c", textwrap.dedent(text), *words),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


# Prints "ready" once it captures packets. When its input ends, prints them all in hexadecimal.
RECORDER = """
    import select, socket, sys
    all_packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    all_packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    print("ready")
    kept = []
    while True:
        ready, _, _ = select.select([all_packets, sys.stdin], [], [])
        if all_packets in ready:
            kept.append(all_packets.recv(65536))
        elif sys.stdin in ready:
            break
    for packet in kept:
        print(packet.hex())
"""


def test_the_key_does_not_cross_the_network(hosts: CabledHosts, pair: tuple[Probe, Probe]):
    a, b = pair
    recorder = script(hosts, "b", RECORDER)
    assert recorder.stdout.readline() == "ready\n"
    a.ask(do="call", name=0)
    a.answer("called")
    assert b.answer("heard")["from"] in ("c0", "cable")
    port, packets = b.listening["ports"][0], b.listening["packets"]
    target = {"id": 0, "to": "10.81.0.2"}
    assert a.dial("10.81.0.2", port)["good"]
    a.ask(do="packet", **target, port=packets, bytes=1000)
    assert a.answer("packet")["good"]
    a.ask(do="time", **target, port=port, seconds=0.1)
    assert a.answer("timed")["bytes_per_s"] > 0
    said = bytes.fromhex(recorder.communicate("")[0].replace("\n", ""))
    assert b"call " in said and b"hello" in said, "nothing was recorded"
    for secret in (KEY, KEY[:32], KEY[16:]):
        assert secret.encode() not in said and bytes.fromhex(secret) not in said


# Sends its arguments over cable c1. They are messages recorded on the other cable.
REPEATER = f"""
    import socket, sys
    out = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    out.bind(("::", {CALLS}))
    for _ in range(5):
        for message in sys.argv[1:]:
            out.sendto(bytes.fromhex(message), ("ff02::1", {CALLS}, 0, socket.if_nametoindex("c1")))
    print("done")
"""


def test_replayed_test_packets_make_no_neighbour(hosts: CabledHosts, pair: tuple[Probe, Probe]):
    """Host c replays to b all messages that a and b exchanged."""
    a, b = pair
    recorder = script(hosts, "a", RECORDER)
    assert recorder.stdout.readline() == "ready\n"
    a.ask(do="call", name=0)
    a.answer("called")
    b.answer("heard")
    time.sleep(0.5)
    packets = [bytes.fromhex(line) for line in recorder.communicate("")[0].split()]
    said = {
        packet[packet.index(word) :]
        for packet in packets
        for word in (b"call ", b"who ", b"here ")
        if word in packet
    }
    assert {each.split()[0] for each in said} == {b"call", b"who", b"here"}
    b.all_answers()
    stranger = script(hosts, "c", REPEATER, *(each.hex() for each in said))
    assert stranger.communicate()[0] == "done\n"
    assert b.answer("unanswered")["at"] == "c1"
    time.sleep(0.5)
    assert [each for each in b.all_answers() if "heard" in each] == []


def test_a_probe_with_another_key_is_refused(hosts: CabledHosts, pair: tuple[Probe, Probe]):
    a, b = pair
    port = b.listening["ports"][0]
    other = Probe(hosts, "c", key="another key of sixteen letters")
    try:
        refused = other.dial("10.81.1.2", port)
        assert not refused["good"]
        assert refused["why"] == "a probe of another run answers at this address"
        other.ask(do="packet", id=0, to="10.81.1.2", port=b.listening["packets"], bytes=600)
        assert not other.answer("packet")["good"]
        other.ask(do="call", name=0)
        other.answer("called")
        assert [x for x in b.all_answers() if "heard" in x or "unanswered" in x] == []
    finally:
        other.close()
    silent = script(hosts, "b", """
        import socket, time
        s = socket.create_server(("0.0.0.0", 7000))
        talks = socket.create_server(("0.0.0.0", 7001))
        print("ready")
        talks.accept()[0].sendall(b"220 mail\\n")
        time.sleep(1000)
    """)  # fmt: skip
    assert silent.stdout.readline() == "ready\n"
    try:
        silence = "the host accepts the connection, but sends nothing for 3 s"
        assert a.dial("10.81.0.2", 7000)["why"] == silence
        assert a.dial("10.81.0.2", 7001)["why"] == "another program answers at this address"
        assert a.dial("10.81.0.2", 7002)["why"] == "Connection refused"
    finally:
        silent.kill()
        silent.communicate()


FLOOD = """
    import socket, sys, time
    held = []
    for _ in range(600):
        held.append(socket.create_connection((sys.argv[1], int(sys.argv[2]))))
    print("ready")
    while True:
        for each in held:
            try:
                each.send(b"x")
            except OSError:
                pass
        time.sleep(1)
"""


def test_a_flood_does_not_silence_a_probe(hosts: CabledHosts, pair: tuple[Probe, Probe]):
    """A stranger holds more connections than the probe does and keeps sending bytes on each."""
    a, b = pair
    port = b.listening["ports"][0]
    stranger = script(hosts, "c", FLOOD, "10.81.1.2", port)
    assert stranger.stdout.readline() == "ready\n"
    try:
        for _ in range(5):
            assert a.dial("10.81.0.2", port)["good"]
        begin = time.monotonic()
        b.process.stdin.close()
        assert b.process.wait(timeout=PATIENCE) == 0
        assert time.monotonic() - begin < 2, "it did not end with its input"
    finally:
        stranger.kill()
        stranger.communicate()


def test_a_probe_answers_any_number_of_connections(pair: tuple[Probe, Probe]):
    a, b = pair
    port = b.listening["ports"][1]
    for number in range(700):
        a.ask(do="dial", id=number, to="10.81.0.2", port=port)
    answers = [a.answer("dialled") for _ in range(700)]
    assert [each for each in answers if not each["good"]] == []
    for number in range(80):
        a.ask(do="time", id=number, to="10.81.0.2", port=port, seconds=0.01)
        assert a.answer("timed")["bytes_per_s"] > 0


def test_a_probe_ends_while_it_waits_for_an_answer(hosts: CabledHosts, pair: tuple[Probe, Probe]):
    a, _ = pair
    a.ask(do="dial", id=0, to="10.81.0.9", port=1)
    a.ask(do="call", name=0)
    begin = time.monotonic()
    a.process.stdin.close()
    assert a.process.wait(timeout=PATIENCE) == 0
    assert time.monotonic() - begin < 2


def test_a_probe_takes_no_port_of_a_job(hosts: CabledHosts, pair: tuple[Probe, Probe]):
    """The probe avoids the first ports of ranks and those of `mccl launch`."""
    _, b = pair
    for port in b.listening["ports"]:
        assert 29680 <= port <= 29700 or 32380 <= port <= 32400
    second = Probe(hosts, "b")
    try:
        assert not set(second.listening["ports"]) & set(b.listening["ports"])
    finally:
        second.close()


@pytest.mark.parametrize(
    "request_line",
    ["", "x", "[]", "{}", '{"do": "fly"}', '{"do": "dial"}', '{"do": "listen", "key": "short"}',
     '{"do": "dial", "id": 0, "to": "10.0.0.1", "port": 1}', '{"do": "tell", "python": 3}',
     "[" * 1000],
)  # fmt: skip
def test_an_odd_request_ends_it_with_a_reason(request_line: str):
    done = subprocess.run(
        [program(), "probe"], input=request_line + "\n", capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode in (1, 2) and done.stderr.startswith("mccl")
