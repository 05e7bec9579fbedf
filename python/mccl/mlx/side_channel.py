"""Finds the meeting point of a job's ranks with an all-gather function that the program provides.

Rank 0 listens on a port, and sends all its addresses and a key through the function. Each other
rank finds an address at which it reaches rank 0. MLX's jaccl takes the function as
`all_gather_factory`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mccl import _core
from mccl.jobs import Address

#: Gathers the bytes of all ranks in the order of ranks. All ranks pass the same number of bytes.
AllGather = Callable[[bytes, int], bytes]
Factory = Callable[[int, int], AllGather]

#: Length of a rank's message in bytes.
_LENGTH = 4096
#: Seconds that a rank waits for an answer at an address.
_PATIENCE = 5.0
#: Interval, in seconds, at which the listener checks whether it is still needed.
_LOOK = 0.05
#: Maximum number of addresses that rank 0 sends.
_MOST_ADDRESSES = 32
_GREETING = b"mccl meets here"


def meet(factory: Factory, rank: int, size: int) -> dict[str, str]:
    """Returns the settings `root` and `job_key` with which this rank joins the other ranks.

    Raises:
        ValueError: The factory did not return a function, or that function did not return the bytes
            of all ranks.
        RuntimeError: A rank reaches none of rank 0's addresses; all ranks raise this error.
    """
    gather = factory(rank, size)
    if not callable(gather):
        raise ValueError(
            "all_gather_factory: expected a factory that returns a function of bytes and their "
            f"number; it returned {type(gather).__name__}"
        )
    with contextlib.ExitStack() as stack:
        mine: dict[str, Any] = {}
        if rank == 0:
            key = secrets.token_hex(32)
            port = stack.enter_context(_listening(key))
            mine = {"port": port, "key": key, "addresses": _told_addresses()}
        first = _gathered(gather, mine, rank, size)[0]
        if not _is_offer(first):
            raise _not_sent()
        root = Address(_everywhere(), first["port"]) if rank == 0 else _reached(first)
        found = _gathered(gather, {"root": str(root) if root else ""}, rank, size)
        if not all(isinstance(answer.get("root"), str) for answer in found):
            raise _not_sent()
    lost = [str(other) for other, answer in enumerate(found) if not answer["root"]]
    if lost:
        raise RuntimeError(
            f"rank {', '.join(lost)} could not reach rank 0 at any of its addresses "
            f"({', '.join(first['addresses'])}), port {first['port']}; check the network and "
            "firewalls, or set MLX_JACCL_COORDINATOR=host:port and leave all_gather_factory out"
        )
    return {"root": str(root), "job_key": first["key"]}


def _told_addresses() -> list[str]:
    """Returns rank 0's addresses, without link-local ones, which are valid only on one link."""
    told = [each for each in _core.own_addresses() if not each.lower().startswith("fe80:")]
    return told[:_MOST_ADDRESSES]


def _is_offer(message: dict[str, Any]) -> bool:
    """True for a message in which rank 0 says where it listens."""
    match message:
        case {"port": int(port), "key": str(key), "addresses": [*addresses]}:
            return (
                not isinstance(port, bool)
                and 0 < port < 65536
                and key.isascii()
                and len(addresses) <= _MOST_ADDRESSES
                and all(isinstance(each, str) for each in addresses)
            )
    return False


def _not_sent() -> ValueError:
    return ValueError(
        "all_gather_factory: its function returned bytes that no rank has sent; it must return the "
        "bytes of all ranks in rank order"
    )


def _gathered(
    gather: AllGather, mine: dict[str, Any], rank: int, size: int
) -> list[dict[str, Any]]:
    """Returns the messages of all ranks. Raises ValueError if this rank's is not among them."""
    text = json.dumps(mine).encode().ljust(_LENGTH)
    answer = gather(text, _LENGTH)
    expected = size * _LENGTH
    if not isinstance(answer, (bytes, bytearray, memoryview)) or len(answer) != expected:
        found = f"{len(answer)} bytes" if hasattr(answer, "__len__") else type(answer).__name__
        raise ValueError(
            f"all_gather_factory: expected its function to return {expected} bytes, {_LENGTH} of "
            f"each of {size} ranks; found {found}"
        )
    parts = [bytes(answer[begin : begin + _LENGTH]) for begin in range(0, expected, _LENGTH)]
    try:
        messages = [json.loads(part) for part in parts]
    except (ValueError, RecursionError):
        raise _not_sent() from None
    if parts[rank] != text or not all(isinstance(message, dict) for message in messages):
        raise _not_sent()
    return messages


def _everywhere() -> str:
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def _greeting(key: str) -> bytes:
    """Returns the proof that a listener is rank 0, because other hosts may have its addresses."""
    return hmac.new(key.encode(), _GREETING, hashlib.sha256).digest()


@contextlib.contextmanager
def _listening(key: str) -> Iterator[int]:
    """Listens, and sends a greeting to every connection; yields the port."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with socket.create_server((_everywhere(), 0), family=family, dualstack_ipv6=dual) as server:
        server.settimeout(_LOOK)
        ended = threading.Event()

        def greet() -> None:
            # On macOS, accept() does not return when another thread shuts the socket down.
            while not ended.is_set():
                with contextlib.suppress(OSError):  # No connection arrived, or the peer closed it.
                    connection, _ = server.accept()
                    with connection:
                        connection.settimeout(_PATIENCE)
                        connection.sendall(_greeting(key))

        thread = threading.Thread(target=greet, name="mccl meeting", daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            thread.join()


def _reached(first: dict[str, Any]) -> Address | None:
    """Returns the first address at which rank 0 answers, or None. Tries all in parallel."""
    addresses: Sequence[str] = first["addresses"]
    wanted = _greeting(first["key"])
    outcomes: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def knock(address: str) -> None:
        answer = b""
        try:
            place = (address, first["port"])
            with socket.create_connection(place, timeout=_PATIENCE) as connection:
                answer = connection.makefile("rb").read(len(wanted))
        except (OSError, ValueError):  # ValueError: it is no address.
            pass
        finally:
            outcomes.put(address if answer == wanted else None)

    for address in addresses:
        threading.Thread(target=knock, args=(address,), daemon=True).start()
    for _ in addresses:
        if reached := outcomes.get():
            return Address(reached, first["port"])
    return None
