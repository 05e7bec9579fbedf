"""Free TCP ports for tests."""

import os
import random
import socket

#: Range of ports that tests use. It lies below the ephemeral ports of Linux (from 32768) and macOS
#: (from 49152), so that no other socket is assigned the port before the test uses it. It also
#: avoids MCCL's default ports (from 29500 and from 29600) and the ports of the C++ tests
#: (tests/support/free_places.h).
PORTS = range(20000, 29000)

#: Each of pytest's processes has a share of the ports, so that two tests never get the same one.
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_given: set[int] = set()


def free_port() -> int:
    """Returns a TCP port of this host on which nothing listens, a different one on each call."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        if port in _given or port % _PROCESSES != _PROCESS:
            continue
        with socket.socket() as listener:
            try:
                listener.bind(("", port))
            except OSError:
                continue
        _given.add(port)
        return port
