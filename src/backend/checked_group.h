// The common base of every backend's groups: checks the arguments of a call and decides what
// carries it out.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "backend/arguments.h"
#include "backend/direct/notices.h"
#include "backend/direct/path.h"
#include "backend/request.h"
#include "backend/staged/host_calls.h"
#include "backend/staged/line.h"
#include "base/coding.h"
#include "mccl/group.h"

namespace mccl {

/// Calls on device memory run on the devices if the group has a path that supports them. Otherwise
/// they go through the group's line, which copies the data to host memory and back. Calls on host
/// memory start immediately, unless an earlier call is still in the line.
class CheckedGroup : public Group, private staged::HostCalls {
 public:
  Work all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions&) final;
  std::size_t bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                           const CallOptions&) const final;
  Work broadcast(Buffer data, int root, const CallOptions&) final;
  Work reduce(ConstBuffer in, Buffer out, ReduceOp op, int root, const CallOptions&) final;
  Work all_gather(ConstBuffer in, Buffer out, const CallOptions&) final;
  Work all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                   const CallOptions&) final;
  Work gather(ConstBuffer in, Buffer out, int root, const CallOptions&) final;
  Work gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
               const CallOptions&) final;
  Work scatter(ConstBuffer in, Buffer out, int root, const CallOptions&) final;
  Work scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                const CallOptions&) final;
  Work reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions&) final;
  Work reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op,
                       const CallOptions&) final;
  Work all_to_all(ConstBuffer in, Buffer out, const CallOptions&) final;
  Work all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                   std::span<const std::size_t> out_counts, const CallOptions&) final;
  Work barrier(const CallOptions&) final;
  Work send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions&) final;
  Work recv(Buffer data, int peer, std::uint32_t tag, const CallOptions&) final;
  void reach_device_memory(Device device) final {
    if (path_) path_->reach_memory(device);
  }
  void begin_coalescing() final;
  Work end_coalescing() final;

  void split_path(Group* child, int color, int key) final;

  /// Sets the path. Collectives that it supports (see Path::takes) use it, except in batches. Must
  /// be called before the first call.
  void use(std::shared_ptr<direct::Path> path) { path_ = std::move(path); }
  /// Sets the receiver of warnings about options that the group cannot use. Must be called before
  /// the first call.
  void use(std::shared_ptr<direct::Notices> notices) { notices_ = std::move(notices); }

  std::optional<device::Word> last_on_device() const final;
  bool has_come_to(device::Word number) const final;

  /// Makes the group stage calls even on memory that a Mac's GPU shares with the host. Must be
  /// called before the first call.
  void stage_always() { stages_always_ = true; }

 protected:
  /// Starts a call on host memory.
  Work start(const Request& request, const CallOptions& options) override = 0;
  void begin_batch() override = 0;
  Work end_batch() override = 0;
  bool batch_is_open() const override = 0;
  bool has_failed() const override = 0;
  std::chrono::milliseconds timeout_of(const CallOptions& options) const override = 0;
  /// The codec that the call uses on the wire.
  virtual Coding coding_of(const Request& request, const CallOptions& options) const = 0;
  bool stages_always() const { return stages_always_; }
  bool begins_early(const Request& /*request*/) const override { return false; }
  /// Registers the callback `told`, which runs as soon as the group has failed, even if no call on
  /// host memory is in flight.
  virtual void watch_failure(const std::function<void()>& /*told*/) {}
  /// Closes the line, which then starts no more calls. Must be called first in the destructor of
  /// every derived class.
  void close_line();
  /// Ends calls that run on a device. Must be called when the group is aborted.
  void abort_path() {
    if (path_) path_->abort();
  }

 private:
  int own_rank() const final { return rank(); }
  void give_up(const std::string& reason) final { abort(reason); }
  /// `on_device` describes the same call for a device that carries it out by itself, if it may
  /// differ from `request`.
  Work begin(const Request& request, const CallOptions& options,
             const Request* on_device = nullptr);
  bool goes_directly(const Request& request, const CallOptions& options);
  void refuse_capture(const Request& request, const CallOptions& options) const;
  Work begin_directly(const Request& request, const CallOptions& options);
  staged::Line& line();
  Work begin_sum(const Request& request, const CallOptions& options);
  Arguments arguments() const { return {rank(), size()}; }

  bool stages_always_ = false;
  std::shared_ptr<direct::Path> path_;
  std::shared_ptr<direct::Notices> notices_;
  std::once_flag path_is_watched_;
  std::mutex line_mutex_;
  std::shared_ptr<staged::Line> line_;  // guarded by line_mutex_
  /// Copy of `line_` that can be read without the lock.
  std::atomic<staged::Line*> line_if_any_{nullptr};
};

}  // namespace mccl
