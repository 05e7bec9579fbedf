"""Sums an array over all ranks by the C interface, as a binding in another language would.

mccl launch -n 2 -- python binding.py /path/to/libmccl.so.0
"""

import ctypes as c
import sys

MCCL_F32, MCCL_SUM = 11, 0

lib = c.CDLL(sys.argv[1])
lib.mccl_last_error.restype = c.c_char_p


def check(status: int) -> None:
    """Raises the error of this thread's last call unless it succeeded."""
    if status != 0:
        raise RuntimeError(lib.mccl_last_error().decode())


context, world = c.c_void_p(), c.c_void_p()
check(lib.mccl_context_from_environment(None, c.byref(context)))
check(lib.mccl_context_world(context, c.byref(world)))
x = (c.c_float * 4)(*[lib.mccl_group_rank(world) + 1] * 4)
check(lib.mccl_all_reduce(world, x, x, c.c_size_t(4), MCCL_F32, MCCL_SUM, None, None))
print(list(x))
lib.mccl_group_destroy(world)
lib.mccl_context_destroy(context)
