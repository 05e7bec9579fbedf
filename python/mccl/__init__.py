"""MCCL: collective communication between processes, for NumPy, torch and MLX.

``import mccl`` is cheap: it loads neither a framework nor the library. It registers the backend
"mccl" with ``torch.distributed`` at once if torch is already imported, else when torch is imported.
``mccl.distributed``, ``mccl.hooks`` and ``mccl.mlx`` are imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import mccl_engine

if TYPE_CHECKING:
    from . import distributed as distributed
    from . import hooks as hooks
    from . import mlx as mlx
    from .config import MCCLConfig, get_config, init
    from .metrics import flight_record, get_metrics, log_metrics, reset_metrics
    from .torch_memory import empty

mccl_engine.require_alone()

__version__ = "0.1.0"

__all__ = [
    "MCCLConfig",
    "__version__",
    "empty",
    "flight_record",
    "get_config",
    "get_metrics",
    "init",
    "log_metrics",
    "reset_metrics",
]

_HOMES = {
    "MCCLConfig": "config",
    "empty": "torch_memory",
    "get_config": "config",
    "init": "config",
    "flight_record": "metrics",
    "get_metrics": "metrics",
    "log_metrics": "metrics",
    "reset_metrics": "metrics",
}

#: Modules that need NumPy, torch or MLX.
_FACES = ("distributed", "hooks", "mlx")

_C10D = "torch.distributed.distributed_c10d"


def __getattr__(name: str) -> Any:
    if name in _FACES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names, and the modules of the package that have been imported."""
    modules = [name for name in globals() if f"{__name__}.{name}" in sys.modules]
    return sorted({*__all__, *(name for name in modules if not name.startswith("_"))})


def _autoload() -> None:
    """Registers the backend with torch at once, or when torch is imported. Never raises."""
    try:
        if hasattr(sys.modules.get(_C10D), "init_process_group"):
            from .torch_backend import register

            register()
        else:
            mccl_engine.after_import(_C10D, _autoload)
    except Exception as error:
        import warnings

        warnings.warn(f"mccl could not register with torch.distributed: {error}", stacklevel=2)


_autoload()
