"""A full disk: this process's own /dev/shm, which lanes.privatize() has mounted."""

import ctypes
import os
import shutil
from pathlib import Path

_MS_REMOUNT = 32
_SHM = Path("/dev/shm")
#: Folder on the disk for the logs and flight records of a trial.
FOLDER = _SHM / "chaos"
_SIZE = "size=1g"


class FullDisk:
    """Leaves that many pages free until close()."""

    def __init__(self, pages: int) -> None:
        FOLDER.mkdir()
        page = os.sysconf("SC_PAGE_SIZE")
        (FOLDER / "content").write_bytes(b"x" * page)
        state = os.statvfs(_SHM)
        used = (state.f_blocks - state.f_bfree) * state.f_frsize
        _remount(f"size={used + pages * page}")

    def close(self) -> None:
        _remount(_SIZE)
        shutil.rmtree(FOLDER)


def _remount(options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, bytes(_SHM), None, _MS_REMOUNT, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount {_SHM} again with {options}")
