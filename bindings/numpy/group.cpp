#include "python/errors.h"
// The include above must stay first: it makes the error types visible to other libraries (see
// errors.h).
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>

#include "numpy/group.h"
#include "numpy/interruptible.h"
#include "python/capsule.h"

namespace mccl::numpy {
ArrayGroup::ArrayGroup(std::shared_ptr<Group> group)
    : group_(std::move(group)), process_(::getpid()) {}

ArrayGroup::~ArrayGroup() {
  if (!group_) return;
  if (process_ != ::getpid()) {
    // In a forked child, leak the group: threads that exist only in the parent may hold its locks.
    static_cast<void>(new auto(std::move(group_)));
    return;
  }
  const nb::gil_scoped_release without_gil;  // reset() may block until a thread has ended
  group_.reset();
}

nb::object ArrayGroup::failure() const {
  const std::string reason = group_->failure();
  return reason.empty() ? nb::none() : nb::object(nb::str(reason.c_str(), reason.size()));
}

nb::object ArrayGroup::capsule() const { return python::capsule_of(group_, python::kGroupCapsule); }

std::string ArrayGroup::repr() const {
  return fmt::format("<mccl.distributed.Group '{}': rank {} of {}>", name(), rank(), size());
}

void ArrayGroup::check_root(const char* call, int root) const {
  if (root >= 0 && root < size()) return;
  throw InvalidArgument(
      fmt::format("{}: root {} is not a rank of this group (0 to {})", call, root, size() - 1));
}

nb::object ArrayGroup::all_reduce(nb::handle x, nb::handle op, nb::handle out, bool wait,
                                  nb::handle timeout, nb::handle compression) {
  constexpr const char* call = "all_reduce";
  const ReduceOp reduction = reduce_op(call, op);
  const Array in = input_array(call, x);
  const Array to = result_array(call, out, in.dtype, in.shape);
  const Manner manner{wait, timeout_of(call, timeout), compression_of(call, compression)};
  return run(call, manner, {in.memory, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               return group.all_reduce(in.buffer(), to.buffer(), reduction, options);
             });
}

nb::object ArrayGroup::broadcast(nb::handle x, int root, nb::handle out, bool wait,
                                 nb::handle timeout) {
  constexpr const char* call = "broadcast";
  check_root(call, root);
  Array to;
  const void* values = nullptr;  // the root's `x`, which is copied to `out` first
  nb::object read;
  if (x.is_none()) {
    if (out.is_none())
      throw InvalidArgument("broadcast: neither x nor out is given; pass one of them");
    to = output_array(call, out);
  } else {
    const Array in = input_array(call, x);
    to = result_array(call, out, in.dtype, in.shape);
    if (rank() == root) values = in.data;
    read = in.memory;
  }
  return run(call, {wait, timeout_of(call, timeout)}, {read, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               const Buffer data = to.buffer();
               if (values && values != data.data && data.bytes() > 0)
                 std::memmove(data.data, values, data.bytes());
               return group.broadcast(data, root, options);
             });
}

nb::object ArrayGroup::reduce(nb::handle x, nb::handle op, int root, nb::handle out, bool wait,
                              nb::handle timeout) {
  constexpr const char* call = "reduce";
  check_root(call, root);
  const ReduceOp reduction = reduce_op(call, op);
  const Array in = input_array(call, x);
  Array to;
  to.object = nb::none();
  to.dtype = in.dtype;
  if (rank() == root) to = result_array(call, out, in.dtype, in.shape);
  const Buffer buffer = rank() == root ? to.buffer() : Buffer{nullptr, 0, in.dtype, {}};
  return run(call, {wait, timeout_of(call, timeout)}, {in.memory, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               return group.reduce(in.buffer(), buffer, reduction, root, options);
             });
}

nb::object ArrayGroup::barrier(bool wait, nb::handle timeout) {
  constexpr const char* call = "barrier";
  return run(call, {wait, timeout_of(call, timeout)}, {{}, {}, nb::none()},
             [](Group& group, const CallOptions& options) { return group.barrier(options); });
}

nb::object ArrayGroup::send(nb::handle x, int peer, std::int64_t tag, bool wait,
                            nb::handle timeout) {
  constexpr const char* call = "send";
  const std::uint32_t number = tag_of(call, tag);
  const Array in = input_array(call, x);
  return run(call, {wait, timeout_of(call, timeout)}, {in.memory, {}, nb::none()},
             [&](Group& group, const CallOptions& options) {
               return group.send(in.buffer(), peer, number, options);
             });
}

nb::object ArrayGroup::recv(nb::handle out, std::optional<int> peer, std::int64_t tag, bool wait,
                            nb::handle timeout) {
  constexpr const char* call = "recv";
  if (peer && *peer < 0) {
    throw InvalidArgument(fmt::format(
        "{}: rank {} is not in this group (0 to {}); pass None to receive from any rank", call,
        *peer, size() - 1));
  }
  const std::uint32_t number = tag_of(call, tag);
  const Array to = output_array(call, out);
  return run(call, {wait, timeout_of(call, timeout)}, {{}, to.memory, to.object},
             [&](Group& group, const CallOptions& options) {
               return group.recv(to.buffer(), peer.value_or(kAnySource), number, options);
             });
}

ArrayGroup ArrayGroup::shrink(nb::handle timeout) {
  std::shared_ptr<Group> rest;
  run_interruptibly(
      [group = group_, limit = timeout_of("shrink", timeout)] { return group->shrink(limit); },
      rest);
  return ArrayGroup(std::move(rest));
}

nb::object ArrayGroup::split(int color, int key) {
  std::shared_ptr<Group> part;
  run_interruptibly([group = group_, color, key] { return group->split(color, key); }, part);
  return part ? nb::cast(ArrayGroup(std::move(part))) : nb::none();
}

}  // namespace mccl::numpy
