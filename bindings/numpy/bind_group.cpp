// The Python interface of a Group; the docstrings document the calls.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "numpy/group.h"

namespace mccl::numpy {
namespace {

constexpr const char* kGroup =
    R"(The ranks that communicate together.

Every rank makes the same collective calls in the same order. A call takes an array in host memory:
a NumPy array, an object with __dlpack__ or the buffer protocol, or any argument of numpy.asarray.
The dtypes are bool, int8 to int64, uint8 to uint64, float16, bfloat16 (of ml_dtypes, or by DLPack),
float32, float64, complex64 and complex128. An array that is not in C order is copied first.

Common arguments:
    out: A writable array in C order, of the result's shape and dtype. None: a new NumPy array. If
        out is x itself, the call works in place.
    wait: True: block, and return the result. False: return a Work at once; do not touch the
        arrays until it is done.
    timeout: Seconds that the call may last; None: the setting `timeout`; math.inf: no limit.
    op: "sum", "avg", "product", "min", "max", "band", "bor", "bxor", or ("premul_sum", factor),
        which multiplies this rank's values by its factor before they are added.
    compression: Codec of a sum or average of floats between machines: "none", "auto", "fp16",
        "bf16", "int8", "fp8", "fp8_e5m2", "int4", or ("topk", ratio), the same on all ranks. None:
        the setting `compression`.

Common errors, all subclasses of mccl.distributed.Error:
    InvalidArgument: An argument is wrong; nothing was sent, and the group stays usable.
    TimeoutError, PeerError, MismatchError, AbortedError, CorruptionError: The call and
        its group failed: every later call fails with the first reason.

Thread-safe. If several threads make collective calls of one group, the program must order the
calls. Control-C ends a wait, not the call.)";

constexpr const char* kAllReduce = R"(Reduces the arrays of all ranks; every rank gets the result.

Args:
    x: An array with the same shape and dtype on all ranks.
    op, out, wait, timeout, compression: See Group.

Returns:
    The result, of x's shape and dtype: `out` if it is given. With wait=False, a Work. The bits are
    the same on every rank. Integer sums wrap; avg of integers truncates toward zero.)";

constexpr const char* kBroadcast = R"(Sends the root's array to all ranks.

Args:
    x: The root's values. Other ranks use only its shape and dtype, or may pass None with out=.
    root: The rank that sends.
    out, wait, timeout: See Group.

Returns:
    The root's values, of x's shape: `out` if it is given. With wait=False, a Work.)";

constexpr const char* kReduce = R"(Reduces the arrays of all ranks; the root gets the result.

Args:
    x: An array with the same shape and dtype on all ranks.
    root: The rank that receives.
    op, wait, timeout: See Group.
    out: See Group; used on the root only.

Returns:
    The result on the root, None elsewhere. With wait=False, a Work with that result.)";

constexpr const char* kAllGather =
    R"(Concatenates the arrays of all ranks along the first axis, in rank order.

Args:
    x: This rank's part, of shape (rows, ...); a scalar counts as one row.
    out: See Group. x may be this rank's part of out.
    wait, timeout: See Group.
    counts: The rows of each rank, the same numbers on all ranks. None: every rank has as
        many rows as this rank.

Returns:
    An array of shape (rows of all ranks, ...). With wait=False, a Work.)";

constexpr const char* kGather =
    R"(Concatenates the arrays of all ranks as all_gather does, on the root only.

Args:
    x: This rank's part, of shape (rows, ...); a scalar counts as one row.
    root: The rank that receives.
    out: See Group; used on the root only.
    wait, timeout: See Group.
    counts: The rows of each rank, the same numbers on all ranks. None: every rank has as
        many rows as this rank.

Returns:
    An array of shape (rows of all ranks, ...) on the root, None elsewhere. With wait=False, a Work
    with that result.)";

constexpr const char* kReduceScatter =
    R"(Reduces the arrays of all ranks; each rank gets its part, along the first axis.

Args:
    x: An array of shape (rows, ...), with the same shape and dtype on all ranks.
    op, wait, timeout, compression: See Group.
    out: See Group. It may be this rank's part of x.
    counts: The rows that each rank gets, the same numbers on all ranks. None: equal parts; the
        number of rows must be a multiple of the number of ranks.

Returns:
    This rank's rows of the result. With wait=False, a Work.)";

constexpr const char* kScatter = R"(Sends each rank its part of the root's array.

Args:
    x: The root's values, of shape (rows, ...). Other ranks use only its shape and dtype, or may
        pass None with out=.
    root: The rank that sends.
    out: See Group. On the root, out may be the root's part of x.
    wait, timeout: See Group.
    counts: The rows that each rank gets, the same numbers on all ranks. None: equal parts; the
        number of rows must be a multiple of the number of ranks.

Returns:
    This rank's rows of the root's x. With wait=False, a Work.)";

constexpr const char* kAllToAll = R"(Sends part j of each rank's array to rank j.

Args:
    x: An array of shape (rows, ...), whose parts follow each other along the first axis.
    out: See Group. It must not overlap x.
    wait, timeout: See Group.
    in_counts: The rows that are sent to each rank. None: equal parts; the number of rows must be a
        multiple of the number of ranks.
    out_counts: The rows that are received from each rank. Pass both counts or neither.

Returns:
    The received parts, in rank order. With wait=False, a Work.)";

constexpr const char* kSend = R"(Sends an array to a rank, which must call recv.

Args:
    x: An array.
    peer: The rank that receives it.
    tag: A number from 0 to 2**32 - 1, which recv must use too.
    wait: See Group. If two ranks send to each other, they must use wait=False, or one of them must
        receive first: a large message waits for its recv.
    timeout: See Group.

Returns:
    None, once x may be reused. With wait=False, a Work.)";

constexpr const char* kRecv = R"(Receives the oldest message that a rank has sent with a tag.

Args:
    out: A writable array in C order, of as many bytes as were sent.
    peer: The rank that sends; None: any rank. Work.source then names the sender.
    tag: A number from 0 to 2**32 - 1.
    wait, timeout: See Group.

Returns:
    `out`. With wait=False, a Work.)";

constexpr const char* kSplit =
    R"(Divides the group into one new group per color. All ranks must call it.

Args:
    color: At least 0; negative for a rank that joins no group.
    key: The new group orders its ranks by key, and ranks with equal keys by their old rank.

Returns:
    The new group, or None for a negative color.)";

constexpr const char* kShrink =
    R"(Makes a group of the surviving ranks after other ranks have died.

All surviving ranks must call it; it blocks until they agree on the ranks of the new group. The new
group keeps the order of the old ranks. This group does not change.

Args:
    timeout: Limit in seconds; None: the group's timeout; math.inf: no limit.

Returns:
    The new group.

Raises:
    PeerError: This rank must not continue, because the other ranks continue without it, or because
        it reaches at most half of the ranks that may be alive.
    TimeoutError: A rank did not call shrink in time.)";

}  // namespace

void bind_group(nb::module_& module) {
  using nb::literals::operator""_a;
  const auto none = nb::none();
  const auto wait = nb::arg("wait") = true;
  const auto timeout = nb::arg("timeout") = none;
  const auto compression = nb::arg("compression") = none;
  nb::class_<ArrayGroup>(module, "Group", kGroup)
      .def_prop_ro("rank", &ArrayGroup::rank, "The rank of this process, from 0.")
      .def_prop_ro("size", &ArrayGroup::size, "The number of ranks.")
      .def_prop_ro("name", &ArrayGroup::name, "The name of the group, the same on all ranks.")
      .def_prop_ro("failure", &ArrayGroup::failure,
                   "The reason why the group has failed; None if it has not failed.")
      .def_prop_ro("capsule", &ArrayGroup::capsule,
                   "A PyCapsule \"mccl.group\" that owns a std::shared_ptr<mccl::Group>*, for "
                   "extension modules.")
      .def("all_reduce", &ArrayGroup::all_reduce, "x"_a, "op"_a = "sum", "out"_a = none,
           nb::kw_only(), wait, timeout, compression, kAllReduce)
      .def("broadcast", &ArrayGroup::broadcast, nb::arg("x").none(), "root"_a = 0, "out"_a = none,
           nb::kw_only(), wait, timeout, kBroadcast)
      .def("reduce", &ArrayGroup::reduce, "x"_a, "op"_a = "sum", "root"_a = 0, "out"_a = none,
           nb::kw_only(), wait, timeout, kReduce)
      .def("all_gather", &ArrayGroup::all_gather, "x"_a, "out"_a = none, "counts"_a = none,
           nb::kw_only(), wait, timeout, kAllGather)
      .def("gather", &ArrayGroup::gather, "x"_a, "root"_a = 0, "out"_a = none, "counts"_a = none,
           nb::kw_only(), wait, timeout, kGather)
      .def("reduce_scatter", &ArrayGroup::reduce_scatter, "x"_a, "op"_a = "sum", "out"_a = none,
           "counts"_a = none, nb::kw_only(), wait, timeout, compression, kReduceScatter)
      .def("scatter", &ArrayGroup::scatter, nb::arg("x").none(), "root"_a = 0, "out"_a = none,
           "counts"_a = none, nb::kw_only(), wait, timeout, kScatter)
      .def("all_to_all", &ArrayGroup::all_to_all, "x"_a, "out"_a = none, "in_counts"_a = none,
           "out_counts"_a = none, nb::kw_only(), wait, timeout, kAllToAll)
      .def("barrier", &ArrayGroup::barrier, nb::kw_only(), wait, timeout,
           "Blocks until every rank has called barrier. With wait=False, returns a Work that is "
           "done at that time.")
      .def("send", &ArrayGroup::send, "x"_a, "peer"_a, "tag"_a = 0, nb::kw_only(), wait, timeout,
           kSend)
      .def("recv", &ArrayGroup::recv, "out"_a, "peer"_a = none, "tag"_a = 0, nb::kw_only(), wait,
           timeout, kRecv)
      .def("split", &ArrayGroup::split, "color"_a, "key"_a = 0, kSplit)
      .def("shrink", &ArrayGroup::shrink, nb::kw_only(), "timeout"_a = nb::none(), kShrink)
      .def("abort", &ArrayGroup::abort, "reason"_a,
           "Fails all pending and later calls, on all ranks, with `reason`. Returns immediately.")
      .def("__repr__", &ArrayGroup::repr);
}

}  // namespace mccl::numpy
