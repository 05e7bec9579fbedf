"""torch's operators support MPS, and the double detects memory that is touched too early."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from mccl import torch_backend

pytestmark = pytest.mark.long
HERE = Path(__file__).parent

#: All operators of torch except monitored_barrier_, which only gloo has.
OPERATORS = {
    "_allgather_base_",
    "_reduce_scatter_base_",
    "allgather_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "barrier",
    "broadcast_",
    "gather_",
    "recv_",
    "recv_any_source_",
    "reduce_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
    "send",
}


def has_kernel(name: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"c10d::{name}", key)


def test_every_operator_of_collectives_takes_mps():
    torch_backend.load()
    assert len(OPERATORS) == 19
    assert {name for name in OPERATORS if has_kernel(name, "MPS")} == OPERATORS
    assert not has_kernel("monitored_barrier_", "MPS")
    named = {name.split("::")[1] for name in torch._C._dispatch_get_all_op_names()
             if name.startswith("c10d::")}  # fmt: skip
    assert {name for name in named if has_kernel(name, "CPU") and not has_kernel(name, "MPS")} <= {
        "monitored_barrier_"
    }


def run(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
    )


def test_touching_memory_before_its_event_kills_the_process():
    for shared, dies in ((True, False), (True, True)):
        ended = run(f"""
            import ctypes, torch, fake_device
            fake = fake_device.load()
            fake.set_shared({shared})
            data = torch.zeros(10, device="mps")
            fake.hold({dies})
            event = torch._C._mps_acquireEvent(False)
            torch._C._mps_recordEvent(event)
            while not {dies} and not torch._C._mps_queryEvent(event):
                pass
            print(ctypes.c_float.from_address(fake.host_address(data)).value)
        """)
        assert (ended.returncode < 0) == dies, ended.stderr
        assert ended.stdout == ("" if dies else "0.0\n")


def test_the_double_detects_library_threads_that_use_torchs_stream():
    ended = run("""
        import torch, fake_device, threading
        fake = fake_device.load()
        def body():
            import ctypes
            ctypes.CDLL(None).prctl(15, b"mccl progress", 0, 0, 0)
            torch.zeros(1, device="mps")
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        print(*fake.violations())
    """)
    assert "work for torch's stream by the library's thread" in ended.stdout, ended.stderr
