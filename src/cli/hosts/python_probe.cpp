#include "cli/hosts/python_probe.h"

namespace mccl::cli::hosts {
namespace {

constexpr const char* kListen = R"py(
import errno, os, socket, struct, sys, threading, time
CALLS, TRIES, PATIENCE = 29599, 64, 3
key = sys.stdin.readline().strip()
lock = threading.Lock()

def say(*words):
    with lock:
        print(*words, flush=True)

def start(body, *words):
    threading.Thread(target=body, args=words, daemon=True).start()

def bound(kind, port):
    for family, here in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            s = socket.socket(family, kind)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            s.bind((here, port))
            return s
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None

def line_of(s):
    line = b""
    while len(line) < 200:
        byte = s.recv(1)
        if not byte:
            return ""
        if byte == b"\n":
            return line.decode("latin-1")
        line += byte
    return ""

def answer(s):
    try:
        s.settimeout(5)
        line = line_of(s)
        if not line.startswith(key + " "):
            return
        purpose, n = line[len(key) + 1:], 0
        s.sendall(b"ok\n")
        for data in iter(lambda: s.recv(1 << 18), b""):
            n += len(data)
            if purpose == "echo":
                s.sendall(data)
        if purpose == "count":
            s.sendall(b"%d\n" % n)
    except OSError:
        pass
    finally:
        s.close()

def serve(s):
    while True:
        try:
            start(answer, s.accept()[0])
        except OSError:
            time.sleep(0.1)

def echo(s):
    while True:
        data, there = s.recvfrom(65536)
        head = data.split(b"\n")[0][:400]
        if head.startswith(key.encode() + b" "):
            s.sendto(head, there)

def hear(s):
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    while True:
        data, about, _, _ = s.recvmsg(4096, 256)
        words = data.decode("latin-1").split()
        for level, kind, value in about:
            if kind == socket.IPV6_PKTINFO and len(words) == 3 and words[0] == key:
                index = struct.unpack("16sI", value[:20])[1]
                say("heard", socket.if_indextoname(index), words[1], words[2])

def listen(ports):
    found = []
    for first in ports:
        for port in range(int(first), int(first) + TRIES):
            s = bound(socket.SOCK_STREAM, port)
            if s:
                break
        else:
            sys.exit("none of the ports %s to %d is free" % (first, port))
        s.listen(64)
        start(serve, s)
        found.append(port)
    packets, calls = bound(socket.SOCK_DGRAM, 0), bound(socket.SOCK_DGRAM, CALLS)
    start(echo, packets)
    if calls and calls.family == socket.AF_INET6:
        start(hear, calls)
    say("listening", *found, packets.getsockname()[1])
)py";

constexpr const char* kAsk = R"py(
def call(name):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    left, limit = socket.if_nameindex(), time.monotonic() + 2.5
    while left:
        again = []
        for index, interface in left:
            text = "%s %s %s\n" % (key, name, interface)
            try:
                s.sendto(text.encode(), ("ff02::1", CALLS, 0, index))
            except OSError as error:
                # One that has just come up: its address is still being looked at.
                if error.errno == errno.EADDRNOTAVAIL and time.monotonic() < limit:
                    again.append((index, interface))
        left = again
        time.sleep(0.02)
    say("called")

def family_of(target):
    return socket.AF_INET6 if ":" in target else socket.AF_INET

def reach(source, target, port, purpose):
    s = socket.socket(family_of(target))
    try:
        s.settimeout(PATIENCE)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source != "-":
            s.bind((source, 0))
        s.connect((target, int(port)))
        s.sendall(("%s %s\n" % (key, purpose)).encode())
        if line_of(s) != "ok":
            raise OSError(0, "something else answers there")
        return s
    except BaseException:
        s.close()
        raise

def why(error):
    return "Connection timed out" if isinstance(error, socket.timeout) else error.strerror

def dial(name, source, target, port):
    begin = time.monotonic()
    try:
        s = reach(source, target, port, "hello")
        say("dialled", name, "good", s.getsockname()[0], "%.6f" % (time.monotonic() - begin))
        s.close()
    except OSError as error:
        say("dialled", name, "bad", why(error))

def packet(name, source, target, port, size):
    six = family_of(target) == socket.AF_INET6
    s = socket.socket(family_of(target), socket.SOCK_DGRAM)
    s.settimeout(0.15)
    level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
    if sys.platform == "linux":
        s.setsockopt(level, 23 if six else 10, 3)  # MTU_DISCOVER, PMTUDISC_PROBE
    elif sys.platform == "darwin":
        s.setsockopt(level, 62 if six else 28, 1)  # DONTFRAG
    head = ("%s %s" % (key, size)).encode()
    for _ in range(4):
        try:
            if source != "-":
                s.bind((source, 0))
                source = "-"
            s.sendto((head + b"\n").ljust(int(size) - (48 if six else 28), b"."), (target, int(port)))
            if s.recv(65536) == head:
                say("packet", name, "good")
                return
        except OSError:
            pass
    say("packet", name, "lost")

def timed(name, source, target, port, seconds):
    latency, rate = 0, 0
    try:
        s, rounds = reach(source, target, port, "echo"), []
        for _ in range(64):
            begin = time.monotonic()
            s.sendall(b"x")
            s.recv(1)
            rounds.append(time.monotonic() - begin)
        s.close()
        latency = sorted(rounds)[32] / 2
        s, sent, data = reach(source, target, port, "count"), 0, bytes(1 << 18)
        begin = time.monotonic()
        gone, plenty, soonest = 0, 1 << 25, max(0.05, 100 * latency)
        while gone < float(seconds) and (sent < plenty or gone < soonest):
            s.sendall(data)
            sent += len(data)
            gone = time.monotonic() - begin
        s.shutdown(socket.SHUT_WR)
        if line_of(s) == str(sent):
            rate = sent / (time.monotonic() - begin)
        s.close()
    except OSError:
        pass
    say("timed", name, "%.9f" % latency, "%.0f" % rate)

for line in sys.stdin:
    words = line.split()
    if words[:1] == ["listen"]:
        listen(words[1:])
    for body in (call, dial, packet):
        if words[:1] == [body.__name__]:
            start(body, *words[1:])
    if words[:1] == ["time"]:
        start(timed, *words[1:])
sys.stdout.flush()
os._exit(0)
)py";

}  // namespace

std::string python_probe() { return std::string(kListen) + kAsk; }

}  // namespace mccl::cli::hosts
