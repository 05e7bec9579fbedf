// The group interface: ranks that communicate together, and the calls they make.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mccl/buffer.h"
#include "mccl/call_site.h"
#include "mccl/compression.h"
#include "mccl/export.h"
#include "mccl/fence.h"
#include "mccl/types.h"
#include "mccl/work.h"

namespace mccl {

/// Options of one call. The default is a call with the group's timeout and codec.
struct CallOptions {
  /// Timeout of the call; by default the group's timeout. Zero or negative means no timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// True if the caller promises to wait on the Work immediately. The call then runs on the
  /// caller's thread. If the caller does something else first, the call may pause meanwhile. A
  /// collective that the device carries out without the host is enqueued on `stream` instead: it
  /// ends in stream order, and the Work is done immediately. While `stream` is being captured, such
  /// a collective is enqueued on `stream` even if the flag is false.
  bool caller_waits = false;
  /// Device memory only: allows the call to block until every rank makes it, in order to set up the
  /// direct device path. Implied by `caller_waits`.
  bool may_meet = false;
  /// all_reduce and reduce_scatter: replaces the group's codec for this call. Must be the same on
  /// all ranks. Only a sum or average of floats may set it; any other call throws
  /// InvalidArgument. If all ranks of the group share memory, the sum is exact.
  std::optional<Compression> compression = {};
  /// Device memory only: the caller's stream (a CUstream on CUDA); null means the device's default
  /// stream. The call begins after all work that was submitted to the stream before it. Work that
  /// is submitted later runs concurrently with the call; see Work::wait_on_stream. The stream must
  /// outlive the group unless `stream_may_go` is set.
  void* stream = nullptr;
  /// True if `stream` may be destroyed before the group. If the device carries out the call without
  /// the host, the group then records the end of the call immediately, which costs a few more
  /// driver calls.
  bool stream_may_go = false;
  /// all_to_allv on device memory: promises that all counts of all ranks are equal, so that the
  /// device may carry out the call as an all_to_all. Ignored for host memory.
  bool equal_counts = false;
  /// The call reads and writes its buffers only after this fence has passed; null means no fence.
  /// A call on Metal memory needs a fence that passes after all earlier GPU work on the input and
  /// the output. Later calls of the group begin after the fence, too. Calls of other groups do not
  /// wait for it.
  std::shared_ptr<Fence> fence = {};
  /// all_reduce and reduce_scatter, host memory only: receives the part of the sum that rounding on
  /// this rank drops; zeros if nothing is dropped. If its `data` is null, that part is not stored.
  /// The buffer must have the type and length of the input, and must not overlap the input or the
  /// output. If the caller adds its contents to this rank's next input, no part of the sum is lost
  /// for good (error feedback). The left_out buffers of all ranks together contain everything that
  /// was dropped, from the inputs and from the sum.
  Buffer left_out = {};
  /// The place in the program that makes the call, for flight records and errors; null if unknown.
  const CallSite* site = nullptr;
};

/// Value of `peer` with which recv() accepts a message from any rank.
inline constexpr int kAnySource = -1;

/// A group of ranks, numbered from 0 to size() - 1. Collectives match across ranks by the order of
/// the calls. Messages match by (source, tag), independently of the collectives. All counts are in
/// elements.
///
/// Every call checks its arguments before anything is sent. It throws InvalidArgument if types or
/// counts do not match, if a root or peer is not a rank of the group, if memory overlaps where it
/// must not, or if the reduction is not defined for the type. Work::wait() throws all later errors.
///
/// Input and output may be the same memory (in place) if a call takes both, except for all_to_all
/// and all_to_allv. In a gather, the input may be this rank's slot of the output. In a scatter, the
/// output may be this rank's slot of the input. Otherwise input and output must not overlap. After
/// a failure other than InvalidArgument the group stays failed: every later call fails for the same
/// reason.
///
/// Thread-safe. If several threads issue collectives of one group, the program must give them the
/// same order on all ranks.
class MCCL_API Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;                 ///< This process's rank in the group.
  virtual int size() const = 0;                 ///< Number of ranks of the group.
  virtual const std::string& name() const = 0;  ///< Unique among the context's living groups.

  /// out = the reduction of all ranks' `in` with `op`. in.count == out.count.
  virtual Work all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& = {}) = 0;
  /// Number of bytes that `count` elements occupy on the wire in an all_reduce with these
  /// arguments: their compressed size if a codec applies.
  virtual std::size_t bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                                   const CallOptions& = {}) const = 0;
  /// Copies root's `data` into `data` of every other rank.
  virtual Work broadcast(Buffer data, int root, const CallOptions& = {}) = 0;
  /// Like all_reduce, but only root's `out` is written; other ranks may pass an empty `out`.
  virtual Work reduce(ConstBuffer in, Buffer out, ReduceOp op, int root,
                      const CallOptions& = {}) = 0;
  /// out = the inputs of all ranks, packed in rank order. out.count == size * in.count.
  virtual Work all_gather(ConstBuffer in, Buffer out, const CallOptions& = {}) = 0;
  /// Like all_gather, but rank i contributes counts[i] elements. All ranks pass the same counts,
  /// one per rank; out.count is their sum.
  virtual Work all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                           const CallOptions& = {}) = 0;
  /// Like all_gather, but only root's `out` is written; other ranks may pass an empty `out`.
  virtual Work gather(ConstBuffer in, Buffer out, int root, const CallOptions& = {}) = 0;
  /// Like gather, but rank i contributes counts[i] elements. All ranks pass the same counts.
  virtual Work gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                       const CallOptions& = {}) = 0;
  /// out = this rank's part of root's `in`: rank i receives part i. On root, in.count == size *
  /// out.count; other ranks may pass an empty `in`.
  virtual Work scatter(ConstBuffer in, Buffer out, int root, const CallOptions& = {}) = 0;
  /// Like scatter, but rank i receives counts[i] elements. All ranks pass the same counts.
  virtual Work scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                        const CallOptions& = {}) = 0;
  /// out = this rank's part of the reduction of all inputs. in.count == size * out.count.
  virtual Work reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& = {}) = 0;
  /// Like reduce_scatter, but rank i receives counts[i] elements. All ranks pass the same counts.
  virtual Work reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                               ReduceOp op, const CallOptions& = {}) = 0;
  /// Sends part j of `in` to rank j and receives part i of `out` from rank i. All parts have
  /// in.count / size elements. Out of place only.
  virtual Work all_to_all(ConstBuffer in, Buffer out, const CallOptions& = {}) = 0;
  /// Like all_to_all, but part j of `in` has in_counts[j] elements and part i of `out` has
  /// out_counts[i]. The number of elements that a rank sends to another must equal the number that
  /// the other rank expects.
  virtual Work all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                           std::span<const std::size_t> out_counts, const CallOptions& = {}) = 0;
  /// Completes once every rank has made this call.
  virtual Work barrier(const CallOptions& = {}) = 0;

  /// Sends a message to `peer`; completes once `data` may be reused. A message of at most 32 KiB
  /// (or MCCL_CHUNK_BYTES, if that is less) completes before it is received, as long as the
  /// unreceived messages to that peer take at most 4 MiB in total. In this total, each message
  /// counts as 256 bytes more than its payload. Any other message completes after its receive is
  /// posted. `peer` must not be this rank.
  virtual Work send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions& = {}) = 0;
  /// Receives the oldest message from `peer` (or kAnySource) with this tag. The size of the message
  /// must be data.bytes(). Work::source() returns the sender.
  virtual Work recv(Buffer data, int peer, std::uint32_t tag, const CallOptions& = {}) = 0;

  /// Lets later collectives read inputs in memory from allocate_device_memory() in place where that
  /// is faster. Without this call, collectives always copy their inputs to memory that the other
  /// ranks' devices can access. All ranks must make this call, with devices of the same DeviceKind.
  /// The call may block until all ranks have made it. No-op if the devices cannot access each
  /// other's memory.
  virtual void reach_device_memory(Device /*device*/) {}

  /// Sequence number of the group's last collective that devices carry out without the host, to be
  /// passed to has_come_to(). Empty if there was no such collective.
  virtual std::optional<std::uint32_t> last_on_device() const { return {}; }
  /// True if this rank's device has finished its part of the collective with sequence number
  /// `number` and of all earlier collectives that last_on_device() counts.
  virtual bool has_come_to(std::uint32_t /*number*/) const { return true; }

  /// Lets the groups that split() made use the direct device paths of this group. All ranks must
  /// make this call. split() already makes it, so only bindings that split a group themselves need
  /// it. `child` is this rank's new group, or null if it has none. `color` and `key` are the
  /// arguments of split().
  virtual void split_path(Group* /*child*/, int /*color*/, int /*key*/) {}

  /// Collects the calls that this thread makes until end_coalescing(), which starts them together
  /// as one Work. The two functions must alternate; otherwise they throw InvalidArgument. Waiting
  /// for a collected call before end_coalescing() throws InvalidArgument, too, because the wait
  /// would never return.
  virtual void begin_coalescing() = 0;
  /// Starts the calls that were collected since begin_coalescing(). Returns one Work for all of
  /// them.
  virtual Work end_coalescing() = 0;

  /// Splits the group: ranks of one color form a new group, ordered by (key, rank). Returns null
  /// for a negative color. All ranks must make this call; it blocks until every rank has made it.
  /// The new group has this group's timeout and codec.
  virtual std::shared_ptr<Group> split(int color, int key) = 0;

  /// Returns a new group of the ranks that remain after others have died, in the order of their old
  /// ranks. The ranks need not connect again. The new group has this group's timeout and codec. All
  /// remaining ranks must make this call. It blocks until they have agreed on the members, for at
  /// most `timeout` (by default the group's timeout). shrink() works for a failed group, can be
  /// repeated after each further death, and may leave a single rank. For a healthy group, the new
  /// group has the same members. This group does not change. A rank that has destroyed its group
  /// object counts as dead.
  ///
  /// Throws PeerError on a rank that some other rank cannot reach, if the other ranks continue
  /// without it. A rank may continue only if it can reach more than half of the ranks that may
  /// still be alive, or exactly half of them including the lowest of these ranks; otherwise it
  /// throws PeerError. A divided network therefore never leaves two groups. Throws TimeoutError if
  /// a rank does not make the call, and InvalidArgument if MPI carries out the group's calls.
  virtual std::shared_ptr<Group> shrink(std::optional<std::chrono::milliseconds> timeout = {}) = 0;

  /// Fails all pending and later calls with `reason`, here and on the other ranks. Returns
  /// immediately, and takes no lock that a stuck call may hold.
  virtual void abort(const std::string& reason) = 0;

  /// The reason why the group failed; empty while it is healthy.
  virtual std::string failure() const = 0;
};

}  // namespace mccl
