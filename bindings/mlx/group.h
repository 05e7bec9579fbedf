// Implements MLX's distributed::Group with a group of MCCL.
#pragma once

#include <mlx/distributed/distributed_impl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "arrays.h"
#include "mccl/group.h"
#include "turns.h"

namespace mccl_mlx {

/// Starts one call of the engine.
using Call = std::function<mccl::Work(mccl::Group&, const mccl::CallOptions&)>;
/// Starts one call of the engine that reads `in` and writes `out`.
using CallOnArrays = std::function<mccl::Work(mccl::Group&, mccl::ConstBuffer in, mccl::Buffer out,
                                              const mccl::CallOptions&)>;

/// A group of several ranks. Thread-safe. Collectives match across ranks in the order in which they
/// are evaluated, whatever their streams. If several threads evaluate concurrently, the program
/// must make this order the same on all ranks. Sends to one rank are ordered only among themselves.
/// Receives are posted as soon as they are evaluated, so that ranks which all send first do not
/// deadlock.
class MlxGroup final : public mx::distributed::detail::GroupImpl,
                       public std::enable_shared_from_this<MlxGroup> {
 public:
  /// `on_gpu`: true if collectives run on streams of MLX's GPU when the caller specifies no stream.
  MlxGroup(std::shared_ptr<mccl::Group> group, bool on_gpu);

  /// The caller's stream if there is one; else a GPU stream for a group on the GPU, else a CPU
  /// stream. Throws InvalidArgument for a GPU stream if the group is not on the GPU.
  mx::Stream communication_stream(mx::StreamOrDevice stream) override;
  /// The caller's stream, or a CPU stream. Throws InvalidArgument for a GPU stream.
  static mx::Stream stream_of_cpu(mx::StreamOrDevice stream);

  int rank() override { return group_->rank(); }
  int size() override { return group_->size(); }
  /// Splits the group immediately, not lazily. All ranks must call this function. If all keys are
  /// negative, the ranks of a new group keep their order. Throws InvalidArgument for a negative
  /// color.
  std::shared_ptr<GroupImpl> split(int color, int key) override;

  void all_sum(const mx::array& input, mx::array& output, mx::Stream stream) override;
  void all_gather(const mx::array& input, mx::array& output, mx::Stream stream) override;
  void send(const mx::array& input, int dst, mx::Stream stream) override;
  void recv(mx::array& output, int src, mx::Stream stream) override;
  void all_max(const mx::array& input, mx::array& output, mx::Stream stream) override;
  void all_min(const mx::array& input, mx::array& output, mx::Stream stream) override;
  void sum_scatter(const mx::array& input, mx::array& output, mx::Stream stream) override;

  /// Runs a collective on the stream's thread when its turn comes (see turns.h). MLX rethrows the
  /// call's exception where MLX waits for the stream. If the call fails, floats in `output` become
  /// NaN.
  void run_on(mx::Stream stream, const mccl::Buffer& output, Call call);
  /// Runs a collective that reads `input` and writes `output`. On a CPU stream, works like the
  /// function above. On a GPU stream, blocks until the turn of the call comes, enqueues it, and
  /// throws if that fails. If the call fails after that, the next call on a GPU stream throws.
  void run_on(mx::Stream stream, const mx::array& input, mx::array& output, CallOnArrays call);
  /// Blocks until the turn of a collective comes, and then runs it on this thread. Releases the GIL
  /// meanwhile.
  void run_now(const Call& call);

 private:
  void reduce(const mx::array& input, mx::array& output, mccl::ReduceKind kind, mx::Stream stream);

  void run_on_gpu(mx::Stream stream, const mx::array& input, mx::array& output,
                  const CallOnArrays& call);
  void throw_what_failed();

  const std::shared_ptr<mccl::Group> group_;
  const bool on_gpu_;
  std::vector<mccl::Work> on_their_way_;  ///< GPU calls in flight; guarded by order_.
  const std::shared_ptr<TurnQueue> collectives_ = std::make_shared<TurnQueue>();
  /// One queue per rank, which orders the sends to that rank.
  std::vector<std::shared_ptr<TurnQueue>> sends_;
  /// Held while an operation takes its turn and is enqueued, so that no other operation comes
  /// between these two steps (see TurnQueue).
  std::mutex order_;
};

/// A group of one process. MLX skips all communication in such a group, and the group cannot be
/// split.
class Alone final : public mx::distributed::detail::GroupImpl {
 public:
  mx::Stream communication_stream(mx::StreamOrDevice stream) override;
  int rank() override { return 0; }
  int size() override { return 1; }
  std::shared_ptr<GroupImpl> split(int color, int key) override;
  void all_sum(const mx::array&, mx::array&, mx::Stream) override { refuse("all_sum"); }
  void all_gather(const mx::array&, mx::array&, mx::Stream) override { refuse("all_gather"); }
  void send(const mx::array&, int, mx::Stream) override { refuse("send"); }
  void recv(mx::array&, int, mx::Stream) override { refuse("recv"); }
  void all_max(const mx::array&, mx::array&, mx::Stream) override { refuse("all_max"); }
  void all_min(const mx::array&, mx::array&, mx::Stream) override { refuse("all_min"); }
  void sum_scatter(const mx::array&, mx::array&, mx::Stream) override { refuse("sum_scatter"); }

 private:
  [[noreturn]] static void refuse(const char* call);
};

}  // namespace mccl_mlx
