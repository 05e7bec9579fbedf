"""Exceptions of mccl.distributed and of its groups.

Every message contains the rank, the peer and the call if they are known. It states what was
expected, what was found, and what to do next.
"""

from __future__ import annotations

import builtins


class Error(RuntimeError):
    """Base class of all errors of the library."""


class InvalidArgument(ValueError, Error):  # noqa: N818  # has the same name in C++
    """An argument, setting, file or variable is wrong. Nothing was sent; the group stays usable."""


class TimeoutError(builtins.TimeoutError, Error):
    """A call, or a wait for a call, exceeded its timeout."""


class PeerError(ConnectionError, Error):
    """A peer died, left, or cannot be reached."""


class MismatchError(ValueError, Error):
    """Ranks made different calls, or passed sizes that do not match."""


class AbortedError(Error):
    """The group was aborted or shut down, here or on another rank."""


class CorruptionError(Error):
    """Bytes from a peer are invalid: the network or the peer damaged them."""
