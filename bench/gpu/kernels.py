"""Launches MCCL's GPU kernels directly: any kernel at any size.

The structures mirror src/kernels/cuda/fabric.h. The staging area, which the library shares by CUDA
IPC, is a torch tensor in symmetric memory here.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

ROOT = Path(__file__).resolve().parents[2]
MOST_RANKS, MOST_BLOCKS, MOST_WINDOWS = 8, 256, 1024
MOST_FLAGGED, PACKED_AREA, ROUND = 2 << 20, 4 << 20, 8 << 20
MOST_PACKED = PACKED_AREA // 128 * 120
FLAG_BYTES = MOST_BLOCKS * MOST_RANKS * 64


class StagingLayout(ctypes.Structure):
    """Offsets in a rank's staging area."""

    _fields_ = [
        (name, ctypes.c_size_t) for name in ("flagged", "packed", "received", "results", "bytes")
    ]


class Fabric(ctypes.Structure):
    """Kernel argument that describes the ranks and their memory."""

    _fields_ = [
        ("rank", ctypes.c_int),
        ("ranks", ctypes.c_int),
        ("areas", ctypes.c_void_p * MOST_RANKS),
        ("layout", StagingLayout),
        ("counters", ctypes.c_void_p),
        ("alarm", ctypes.c_void_p),
        ("patience_ns", ctypes.c_uint64),
        ("windows", ctypes.c_void_p),
    ]


class KernelArguments(ctypes.Structure):
    """Kernel argument that describes one call."""

    _fields_ = [
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("divisor", ctypes.c_float),
        ("root", ctypes.c_int),
        ("in_place", ctypes.c_uint64),
    ]


def layout_of(ranks: int) -> StagingLayout:
    flagged, packed = 2 * ranks * 2 * MOST_FLAGGED, 2 * ranks * PACKED_AREA
    received, of_round = FLAG_BYTES + flagged + packed, 2 * ranks * ROUND
    return StagingLayout(
        FLAG_BYTES, FLAG_BYTES + flagged, received, received + of_round, received + 2 * of_round
    )


@dataclass(frozen=True)
class Variant:
    """A kernel and its grid."""

    kernel: str
    blocks: int
    threads: int

    def __str__(self) -> str:
        return f"{self.kernel} {self.blocks}x{self.threads}"

    def has_room(self, size: int, ranks: int) -> bool:
        """True if the kernel's area has room for a call whose longer buffer has `size` bytes."""
        return size <= room_of(self.kernel, ranks)


def room_of(kernel: str, ranks: int) -> int:
    """Returns the bytes of the longest call for which a kernel's area has room."""
    return {
        "flagged_sum": MOST_FLAGGED // (ranks - 1),
        "packed_sum": MOST_PACKED // (ranks - 1),
        "flagged_parts": MOST_FLAGGED // 2 * ranks,
        "packed_parts": MOST_PACKED // 2 * ranks,
        "flagged_scatter": MOST_FLAGGED * ranks,
        "flagged_gather": MOST_FLAGGED * ranks,
        "flagged_broadcast": MOST_FLAGGED // 2 - 16,
    }.get(kernel, 1 << 40)


class Kernels:
    """Launches kernels. All ranks of `group`, an NCCL group, must construct it."""

    def __init__(
        self, group: dist.ProcessGroup, image: Path | None = None, most: int = 512 << 20
    ) -> None:
        """Prepares for calls of at most `most` bytes."""
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        where = torch.device("cuda", torch.cuda.current_device())
        layout = layout_of(self.ranks)
        self._area = symmetric.empty(layout.bytes, dtype=torch.uint8, device=where)
        self._handle = symmetric.rendezvous(self._area, group.group_name)
        self._area.zero_()
        self._counters = torch.zeros(3 * MOST_BLOCKS, dtype=torch.int32, device=where)
        self.alarm = torch.zeros(2, dtype=torch.int32).pin_memory()
        # Memory of all ranks that pooled kernels access: an input and an output.
        self._window = symmetric.empty(2 * most, dtype=torch.uint8, device=where)
        self._window_handle = symmetric.rendezvous(self._window, group.group_name)
        table = torch.zeros(MOST_RANKS, MOST_WINDOWS, dtype=torch.int64)
        table[: self.ranks, 0] = torch.tensor(list(self._window_handle.buffer_ptrs))
        self._table = table.to(where)
        pointers = list(self._handle.buffer_ptrs) + [None] * (MOST_RANKS - self.ranks)
        self._fabric = Fabric(
            self.rank,
            self.ranks,
            (ctypes.c_void_p * MOST_RANKS)(*pointers),
            layout,
            self._counters.data_ptr(),
            self.alarm.data_ptr(),
            5_000_000_000,
            self._table.data_ptr(),
        )
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._module = ctypes.c_void_p()
        self._image = (image or compile_kernels()).read_bytes()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), self._image))
        self._functions: dict[str, ctypes.c_void_p] = {}
        torch.cuda.synchronize()
        dist.barrier(group)

    def _check(self, result: int) -> None:
        if result != 0:
            raise RuntimeError(f"the CUDA driver returned {result}")

    def _function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            function = ctypes.c_void_p()
            self._check(
                self._driver.cuModuleGetFunction(
                    ctypes.byref(function), self._module, f"mccl_{name}".encode()
                )
            )
            self._functions[name] = function
        return self._functions[name]

    def memory(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns two bf16 tensors in memory that the other ranks can access."""
        half = self._window.numel() // 2
        halves = self._window[:size], self._window[half : half + size]
        return halves[0].view(torch.bfloat16), halves[1].view(torch.bfloat16)

    def _place_of(self, tensor: torch.Tensor) -> int:
        offset = tensor.data_ptr() - self._window.data_ptr()
        return offset if 0 <= offset < self._window.numel() else (1 << 64) - 1

    def launch(
        self,
        variant: Variant,
        given: torch.Tensor,
        taken: torch.Tensor,
        size: int,
        *,
        root: int = -1,
        mean: bool = False,
    ) -> None:
        """Launches the kernel on the current stream. `size` is its argument `bytes`."""
        suffix = {torch.float32: "_f32", torch.float16: "_f16", torch.bfloat16: "_bf16"}
        divisor = self.ranks if mean else 1.0
        task = KernelArguments(given.data_ptr(), taken.data_ptr(), size, divisor, root)
        task.in_place = self._place_of(given)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self._fabric), ctypes.addressof(task))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        sums = variant.kernel.endswith(("sum", "parts", "reduce", "scatter"))
        function = self._function(variant.kernel + (suffix[given.dtype] if sums else ""))
        grid, block = (variant.blocks, 1, 1), (variant.threads, 1, 1)
        self._check(
            self._driver.cuLaunchKernel(function, *grid, *block, 0, stream, arguments, None)
        )

    def require_quiet(self) -> None:
        """Raises RuntimeError if a kernel has timed out."""
        if int(self.alarm[1]) != 0:
            raise RuntimeError(f"a kernel timed out waiting for rank {int(self.alarm[1]) - 1}")


def compile_kernels() -> Path:
    """Compiles the kernels for this machine's GPU."""
    major, minor = torch.cuda.get_device_capability()
    image = Path(tempfile.mkdtemp()) / "kernels.cubin"
    command = ["nvcc", "-std=c++20", "-O3", "--fmad=false", "-cubin", f"-arch=sm_{major}{minor}"]
    command += [f"-I{ROOT / 'src'}", "-o", str(image)]
    subprocess.run([*command, str(ROOT / "src/kernels/cuda/collectives.cu")], check=True)
    return image
