"""Ports for what tests start."""

import random
import socket

#: Below those that Linux and macOS give to sockets that ask for none (32768 and 49152 on), so that
#: nothing takes the port between this and its use; clear of MCCL's own, 29500 and 29600 on, and of
#: those of the tests in C++ (tests/support/free_places.h).
PORTS = range(20000, 29000)

_given: set[int] = set()


def free_port() -> int:
    """A TCP port of this host that nobody listens on now; another one each time."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        if port in _given:
            continue
        with socket.socket() as listener:
            try:
                listener.bind(("", port))
            except OSError:
                continue
        _given.add(port)
        return port
