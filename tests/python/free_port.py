"""Ports for what tests start."""

import random
import socket

#: Below those that Linux and macOS give to sockets that ask for none (32768 and 49152 on), so that
#: nothing takes the port between this and its use; and clear of MCCL's own, 29500 and 29600 on.
PORTS = range(20000, 29000)


def free_port() -> int:
    """A TCP port of this host that nobody listens on now."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as listener:
            try:
                listener.bind(("", port))
            except OSError:
                continue
            return port
