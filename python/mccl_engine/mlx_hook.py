"""Makes a Python program that uses MLX run on MCCL, regardless of how it was started.

If the variable MCCL_MLX is set, `mccl_engine_mlx.pth` in site-packages makes Python import this
module at startup. Nothing of MLX or MCCL is imported before the program imports MLX.
"""

from __future__ import annotations

import contextlib
import os

from . import after_import

_ON = ("1", "true", "yes", "on")
_OFF = ("", "0", "false", "no", "off")


def _install() -> None:
    text = os.environ.get("MCCL_MLX", "")
    if text.strip().lower() not in _ON:
        raise ImportError(
            "MCCL_MLX: expected true or false (1 or 0, yes or no, on or off); found "
            f"{text!r}; correct it, or unset it to use MLX's own backends"
        )
    from mccl.mlx.install import install

    install()
    _tell_launcher()


def _tell_launcher() -> None:
    """Creates a file; if no rank creates it, `mccl launch --mlx` warns that MCCL is unused."""
    folder = os.environ.get("_MCCL_LAUNCH")
    if folder:
        # The folder may belong to a job that has ended.
        with contextlib.suppress(OSError):
            os.close(os.open(f"{folder}on-mccl", os.O_CREAT | os.O_WRONLY, 0o600))


def _launch_by_mccl() -> None:
    from mccl.mlx.launching import replace_launchers

    replace_launchers()


if os.environ.get("MCCL_MLX", "").strip().lower() not in _OFF:
    after_import("mlx.core", _install)
    after_import("mlx._distributed_utils.launch", _launch_by_mccl)
