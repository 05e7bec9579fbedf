// The ranks that communicate together, and what they can call.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mccl/buffer.h"
#include "mccl/compression.h"
#include "mccl/export.h"
#include "mccl/fence.h"
#include "mccl/types.h"
#include "mccl/work.h"

namespace mccl {

struct CallOptions {
  /// Default: the group's timeout. Zero or negative means none.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// The caller promises to wait on the Work at once; the call then runs on the caller's thread and
  /// crosses none. Of a collective that a device carries out by itself, the call runs on `stream`
  /// itself, in whose order its end is; the Work is done at once. So it is where `stream` is being
  /// captured, whoever waits.
  bool caller_waits = false;
  /// Of a call on a device's memory: this one may wait until all ranks have come to it, if it is by
  /// it that their devices find each other. A caller that waits allows that anyway.
  bool may_meet = false;
  /// Of an all_reduce or reduce_scatter: how it is rounded, the same on all ranks, whatever the
  /// group's usual way. InvalidArgument where it cannot be: but for sums and averages of floats.
  /// Between ranks that share memory it is exact.
  std::optional<Compression> compression = {};
  /// Of a call on a device's memory: the caller's stream (of CUDA, a CUstream), null for the
  /// device's default. The call begins when the stream has done what it has been given until now;
  /// what it is given afterwards runs beside the call, see Work::wait_on_stream. It must stay until
  /// the group has gone, or else say so:
  void* stream = nullptr;
  /// `stream` may be destroyed before the group has gone. Where a device carries out the call by
  /// itself, the group then notes its end at once, which takes some more calls of the driver.
  bool stream_may_go = false;
  /// What must have passed before the call touches its memory; nothing when null. Of a call on
  /// Metal's memory: a fence behind all that the GPU has been given to do with the input and the
  /// output. The call, and every later one, begins after it; nobody but the call waits for it.
  std::shared_ptr<Fence> fence = {};
  /// Of an all_reduce or reduce_scatter: memory of the input's type and length, apart from it and
  /// the output, that becomes what rounding on this rank leaves out of the sum, zeros where nothing
  /// is. Added to this rank's input of the next such call it is not lost (error feedback): of all
  /// ranks together it is all that was left out, of what they gave and of the sum.
  Buffer left_out = {};
};

inline constexpr int kAnySource = -1;

/// Collectives match across ranks by order of call; point to point by (source, tag), independently
/// of the collectives. All counts are in elements. Every call checks its arguments before anything
/// is sent and throws InvalidArgument; whatever goes wrong later surfaces in Work::wait().
///
/// Input and output may be the same memory (in place) where a call takes both: for gathers the
/// input may be its own slot of the output, for scatters the output its own slot of the input. They
/// must not overlap otherwise. After a failure other than InvalidArgument the group stays failed:
/// every later call fails with the first reason.
///
/// Thread-safe; ranks whose threads issue collectives of one group concurrently must order them.
class MCCL_API Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;

  /// out = op over all ranks' in. in.count == out.count.
  virtual Work all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& = {}) = 0;
  /// The bytes in which a rank's `count` elements travel to be summed by such an all_reduce.
  virtual std::size_t bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                                   const CallOptions& = {}) const = 0;
  /// Everyone's `data` becomes root's.
  virtual Work broadcast(Buffer data, int root, const CallOptions& = {}) = 0;
  /// As all_reduce, but only root's `out` is written; others may pass an empty `out`.
  virtual Work reduce(ConstBuffer in, Buffer out, ReduceOp op, int root,
                      const CallOptions& = {}) = 0;
  /// out = every rank's in, packed in rank order. out.count == size * in.count.
  virtual Work all_gather(ConstBuffer in, Buffer out, const CallOptions& = {}) = 0;
  /// The same where rank i gives counts[i] elements; all ranks pass the same counts.
  virtual Work all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                           const CallOptions& = {}) = 0;
  /// As all_gather, on root only; others may pass an empty `out`.
  virtual Work gather(ConstBuffer in, Buffer out, int root, const CallOptions& = {}) = 0;
  virtual Work gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                       const CallOptions& = {}) = 0;
  /// out = this rank's part of root's in; others may pass an empty `in`.
  virtual Work scatter(ConstBuffer in, Buffer out, int root, const CallOptions& = {}) = 0;
  virtual Work scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                        const CallOptions& = {}) = 0;
  /// out = this rank's part of the reduction. in.count == size * out.count.
  virtual Work reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& = {}) = 0;
  virtual Work reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                               ReduceOp op, const CallOptions& = {}) = 0;
  /// Part j of in goes to rank j; part i of out comes from rank i. Out of place only.
  virtual Work all_to_all(ConstBuffer in, Buffer out, const CallOptions& = {}) = 0;
  virtual Work all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                           std::span<const std::size_t> out_counts, const CallOptions& = {}) = 0;
  /// Done when every rank has called it.
  virtual Work barrier(const CallOptions& = {}) = 0;

  /// A message to `peer`; done when `data` may be reused. Messages of at most 32 KiB are done
  /// without a receive for as long as those to one peer that await theirs take at most 4 MiB
  /// together, counting 256 bytes more for each; any other is done once its receive has been
  /// posted.
  virtual Work send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions& = {}) = 0;
  /// The oldest message from `peer` (or kAnySource) with this tag; its size must match.
  virtual Work recv(Buffer data, int peer, std::uint32_t tag, const CallOptions& = {}) = 0;

  /// A collective of the host, of ranks that are on devices of one kind: collectives on memory that
  /// allocate_device_memory() has given until now use it where it lies, where they would copy it to
  /// memory that the other ranks' devices reach. It changes nothing else, and nothing where the
  /// devices do not reach each other.
  virtual void reach_device_memory(Device /*device*/) {}

  /// The number of the last collective that devices carry out by themselves, for
  /// has_come_to(); none where there was no such call.
  virtual std::optional<std::uint32_t> last_on_device() const { return {}; }
  /// Whether the collectives up to the one of this number are over.
  virtual bool has_come_to(std::uint32_t /*number*/) const { return true; }

  /// A collective of the host: what devices have set up for this group serves the groups that are
  /// made of parts of it. `child` is the group of this rank, null where it is in none; `color` and
  /// `key` as for split(), which makes this call by itself.
  virtual void split_path(Group* /*child*/, int /*color*/, int /*key*/) {}

  /// Calls made between begin and end on this thread start together when end is called, as one
  /// Work. Pairs do not nest. To wait for one of them before is InvalidArgument, since it would be
  /// for ever.
  virtual void begin_coalescing() = 0;
  virtual Work end_coalescing() = 0;

  /// A collective: ranks of one color form a group, ordered by (key, rank). A negative color gives
  /// null.
  virtual std::shared_ptr<Group> split(int color, int key) = 0;

  /// Fails everything pending and to come, here and on the other ranks, with `reason`. Returns at
  /// once and needs no lock that a stuck call holds.
  virtual void abort(const std::string& reason) = 0;

  /// The reason why the group failed; empty while it is healthy.
  virtual std::string failure() const = 0;
};

}  // namespace mccl
