// The Python interface of a Group; the docstrings document the calls.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "numpy/group.h"

namespace mccl::numpy {
namespace {

constexpr const char* kGroup =
    R"(The ranks that communicate together.

Every rank makes the same collective calls in the same order. A call takes an array in host memory:
NumPy's, what __dlpack__ or the buffer protocol lends, or what numpy.asarray takes. The dtypes are
bool, int8 to int64, uint8 to uint64, float16, bfloat16 (of ml_dtypes, or lent by DLPack), float32,
float64, complex64 and complex128. What is not in C order is copied first.

Arguments that calls share:
    out: An array for the result, of its shape and dtype, in C order and writable. None: a new NumPy
        array. Where it is x itself, the call works in place.
    wait: True: block, and return the result. False: return a Work at once; leave the arrays alone
        until it is done.
    timeout: Seconds that the call may last; None: the setting `timeout`; math.inf: no limit.
    op: "sum", "avg", "product", "min", "max", "band", "bor", "bxor", or ("premul_sum", factor),
        which multiplies this rank's values by its factor before they are added.
    compression: How a sum or average of floats travels between machines: "none", "auto", "fp16",
        "bf16", "int8", "fp8", "fp8_e5m2", "int4", or ("topk", ratio), the same on all ranks. None:
        as the setting `compression` says.

Errors that calls share, all of mccl.distributed.Error:
    InvalidArgument: An argument is wrong; nothing was sent, and the group goes on.
    TimeoutError, PeerError, MismatchError, AbortedError, CorruptionError: The call failed, and the
        group with it: every later call fails with the first reason.

Thread-safe; threads that make collective calls of one group must order them among themselves.
Control-C ends a wait, not the call.)";

constexpr const char* kAllReduce = R"(Reduces the arrays of all ranks; everyone gets the result.

Args:
    x: An array; of one shape and dtype on all ranks.
    op, out, wait, timeout, compression: See Group.

Returns:
    The result, of x's shape and dtype: `out` where it is given. Or a Work. The bits are the same on
    every rank. Integer sums wrap; avg of integers truncates toward zero.)";

constexpr const char* kBroadcast = R"(Gives the root's array to all ranks.

Args:
    x: The root's values; elsewhere only its shape and dtype count, and with out= it may be None.
    root: The rank that gives.
    out, wait, timeout: See Group.

Returns:
    The root's values, of x's shape: `out` where it is given. Or a Work.)";

constexpr const char* kReduce = R"(Reduces the arrays of all ranks; the root gets the result.

Args:
    x: An array; of one shape and dtype on all ranks.
    root: The rank that gets.
    op, out, wait, timeout: See Group; only the root's `out` is used.

Returns:
    The result on the root, None elsewhere. Or a Work of that.)";

constexpr const char* kAllGather =
    R"(Puts the arrays of all ranks together, along the first axis, in rank order.

Args:
    x: This rank's part, of shape (rows, ...); a scalar counts as one row.
    out, wait, timeout: See Group. x may be this rank's part of `out`.
    counts: The rows of each rank, the same numbers on all ranks. None: all have as many as this.

Returns:
    An array of shape (rows of all ranks, ...). Or a Work.)";

constexpr const char* kGather =
    R"(As all_gather, for the root only.

Args:
    x: This rank's part, of shape (rows, ...); a scalar counts as one row.
    root: The rank that gets.
    out, wait, timeout: See Group; only the root's `out` is used.
    counts: The rows of each rank, the same numbers on all ranks. None: all have as many as this.

Returns:
    An array of shape (rows of all ranks, ...) on the root, None elsewhere. Or a Work of that.)";

constexpr const char* kReduceScatter =
    R"(Reduces the arrays of all ranks; each rank gets its part, along the first axis.

Args:
    x: An array of shape (rows, ...); of one shape and dtype on all ranks.
    op, out, wait, timeout, compression: See Group. `out` may be this rank's part of x.
    counts: The rows that each rank gets, the same numbers on all ranks. None: as many each, which
        the number of ranks must divide.

Returns:
    This rank's rows of the result. Or a Work.)";

constexpr const char* kScatter = R"(Gives each rank its part of the root's array.

Args:
    x: The root's values, of shape (rows, ...); elsewhere only its shape and dtype count, and with
        out= it may be None.
    root: The rank that gives.
    out, wait, timeout: See Group. On the root `out` may be its part of x.
    counts: The rows that each rank gets, the same numbers on all ranks. None: as many each, which
        the number of ranks must divide.

Returns:
    This rank's rows of the root's x. Or a Work.)";

constexpr const char* kAllToAll = R"(Gives part j of each rank's array to rank j.

Args:
    x: An array of shape (rows, ...), the parts of which follow each other along the first axis.
    out, wait, timeout: See Group; not in place.
    in_counts: The rows that go to each rank. None: as many each, which the number of ranks must
        divide.
    out_counts: The rows that come from each rank. Both counts are given or none.

Returns:
    The parts that came, in rank order. Or a Work.)";

constexpr const char* kSend = R"(Sends an array to a rank, which calls recv.

Args:
    x: An array.
    peer: The rank that gets it.
    tag: A number from 0 to 2**32 - 1, which recv must give too.
    wait, timeout: See Group. Two ranks that send to each other use wait=False, or one of them
        receives first: a large message waits for its recv.

Returns:
    None, when x may be used again. Or a Work.)";

constexpr const char* kRecv = R"(Receives the oldest message of a rank with a tag.

Args:
    out: A writable array in C order, of as many bytes as were sent.
    peer: The rank that sends; None: any, which Work.source tells.
    tag: A number from 0 to 2**32 - 1.
    wait, timeout: See Group.

Returns:
    `out`. Or a Work.)";

constexpr const char* kSplit = R"(Makes groups of the ranks that give the same color. A collective.

Args:
    color: From 0; negative for a rank that joins none.
    key: Ranks are ordered by it in the new group, and by their old rank where it is the same.

Returns:
    The new group, or None for a negative color.)";

}  // namespace

void bind_group(nb::module_& module) {
  using nb::literals::operator""_a;
  const auto none = nb::none();
  const auto wait = nb::arg("wait") = true;
  const auto timeout = nb::arg("timeout") = none;
  const auto compression = nb::arg("compression") = none;
  nb::class_<ArrayGroup>(module, "Group", kGroup)
      .def_prop_ro("rank", &ArrayGroup::rank, "This process's, from 0.")
      .def_prop_ro("size", &ArrayGroup::size, "How many ranks there are.")
      .def_prop_ro("name", &ArrayGroup::name, "The same on all ranks.")
      .def_prop_ro("failure", &ArrayGroup::failure,
                   "The reason why the group failed; None while it is healthy.")
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
           "Returns, or its Work is done, when every rank has called it.")
      .def("send", &ArrayGroup::send, "x"_a, "peer"_a, "tag"_a = 0, nb::kw_only(), wait, timeout,
           kSend)
      .def("recv", &ArrayGroup::recv, "out"_a, "peer"_a = none, "tag"_a = 0, nb::kw_only(), wait,
           timeout, kRecv)
      .def("split", &ArrayGroup::split, "color"_a, "key"_a = 0, kSplit)
      .def("abort", &ArrayGroup::abort, "reason"_a,
           "Fails everything pending and to come, here and on the other ranks, with `reason`. "
           "Returns at once.")
      .def("__repr__", &ArrayGroup::repr);
}

}  // namespace mccl::numpy
