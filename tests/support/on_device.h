// A group whose every call is made on memory of a device: what a test gives it in host memory is
// carried there by a stream, and results are carried back when the call is done.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/work_state.h"
#include "mccl/mccl.h"
#include "support/device_double.h"

namespace mccl::testing {

/// The memory of one call, on the device as it lies on the host: what overlaps there does here.
class Carried {
 public:
  Carried(DeviceDouble& device, DeviceDouble::Queue& stream, const ConstBuffer& in,
          const Buffer& out)
      : out_(out) {
    const std::byte* in_begin = begin_of(in);
    const std::byte* out_begin = begin_of(out);
    const bool apart = in.count == 0 || out.count == 0 || in_begin + in.bytes() <= out_begin ||
                       out_begin + out.bytes() <= in_begin;
    if (apart) {
      device_in = carry(device, stream, in_begin, in.bytes());
      device_out = carry(device, stream, out_begin, out.bytes());
    } else {
      const std::byte* const first = std::min(in_begin, out_begin);
      const std::byte* const last = std::max(in_begin + in.bytes(), out_begin + out.bytes());
      std::byte* const whole = carry(device, stream, first, static_cast<std::size_t>(last - first));
      device_in = whole + (in_begin - first);
      device_out = whole + (out_begin - first);
    }
    if (out.count > 0) result_ = device.at(device_out);
  }

  void carry_back() const {
    if (out_.count > 0) std::memcpy(out_.data, result_, out_.bytes());
  }

  std::byte* device_in = nullptr;
  std::byte* device_out = nullptr;

 private:
  static const std::byte* begin_of(const ConstBuffer& buffer) {
    return static_cast<const std::byte*>(buffer.data);
  }

  std::byte* carry(DeviceDouble& device, DeviceDouble::Queue& stream, const std::byte* from,
                   std::size_t bytes) {
    if (bytes == 0) return nullptr;
    memories_.push_back(device.allocate(bytes));
    // The stream fills it when it comes to it, which a call that does not wait for it is before.
    stream.enqueue([to = memories_.back(), data = std::vector(from, from + bytes)] {
      std::memcpy(to->inside(), data.data(), data.size());
    });
    return memories_.back()->outside();
  }

  std::vector<std::shared_ptr<ForbiddenMemory>> memories_;
  Buffer out_;
  std::byte* result_ = nullptr;
};

class CarriedWork final : public mccl::detail::WorkState {
 public:
  CarriedWork(Work inner, std::shared_ptr<Carried> memory)
      : inner_(std::move(inner)), memory_(std::move(memory)) {}

  void watch() {
    inner_.on_done([self = std::static_pointer_cast<CarriedWork>(shared_from_this())](
                       const std::exception_ptr& error) {
      if (!error) self->memory_->carry_back();
      self->set_source(self->inner_.source());
      for (const Work::Callback& callback : self->finish(error)) callback(error);
    });
  }
  std::string description() const override { return "a call on a device"; }

 protected:
  void help(Clock::time_point deadline) override {
    try {
      const bool bounded = deadline != Clock::time_point::max();
      inner_.wait(bounded ? std::optional(std::chrono::ceil<std::chrono::milliseconds>(
                                deadline - Clock::now()))
                          : std::nullopt);
    } catch (const TimeoutError&) {
      if (!inner_.done()) return;
    } catch (const Error&) {
      if (!inner_.done()) throw;
    }
    sleep_until_done(Clock::time_point::max());
  }

 private:
  const Work inner_;
  const std::shared_ptr<Carried> memory_;
};

class OnDeviceGroup final : public Group {
 public:
  OnDeviceGroup(std::shared_ptr<DeviceDouble> device, std::shared_ptr<Group> inner)
      : device_(std::move(device)), stream_(*device_), inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }

  Work all_reduce(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& o) override {
    return on(in, out, o, [&](auto i, auto u, auto& p) { return inner_->all_reduce(i, u, op, p); });
  }
  std::size_t bytes_to_sum(std::size_t count, DType dtype, ReduceOp op,
                           const CallOptions& o) const override {
    return inner_->bytes_to_sum(count, dtype, op, o);
  }
  Work broadcast(Buffer data, int root, const CallOptions& o) override {
    return on(data, data, o, [&](auto, auto u, auto& p) { return inner_->broadcast(u, root, p); });
  }
  Work reduce(ConstBuffer in, Buffer out, ReduceOp op, int root, const CallOptions& o) override {
    return on(in, out, o,
              [&](auto i, auto u, auto& p) { return inner_->reduce(i, u, op, root, p); });
  }
  Work all_gather(ConstBuffer in, Buffer out, const CallOptions& o) override {
    return on(in, out, o, [&](auto i, auto u, auto& p) { return inner_->all_gather(i, u, p); });
  }
  Work all_gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                   const CallOptions& o) override {
    return on(in, out, o,
              [&](auto i, auto u, auto& p) { return inner_->all_gatherv(i, u, counts, p); });
  }
  Work gather(ConstBuffer in, Buffer out, int root, const CallOptions& o) override {
    return on(in, out, o, [&](auto i, auto u, auto& p) { return inner_->gather(i, u, root, p); });
  }
  Work gatherv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
               const CallOptions& o) override {
    return on(in, out, o,
              [&](auto i, auto u, auto& p) { return inner_->gatherv(i, u, counts, root, p); });
  }
  Work scatter(ConstBuffer in, Buffer out, int root, const CallOptions& o) override {
    return on(in, out, o, [&](auto i, auto u, auto& p) { return inner_->scatter(i, u, root, p); });
  }
  Work scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, int root,
                const CallOptions& o) override {
    return on(in, out, o,
              [&](auto i, auto u, auto& p) { return inner_->scatterv(i, u, counts, root, p); });
  }
  Work reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op, const CallOptions& o) override {
    return on(in, out, o,
              [&](auto i, auto u, auto& p) { return inner_->reduce_scatter(i, u, op, p); });
  }
  Work reduce_scatterv(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, ReduceOp op,
                       const CallOptions& o) override {
    return on(in, out, o, [&](auto i, auto u, auto& p) {
      return inner_->reduce_scatterv(i, u, counts, op, p);
    });
  }
  Work all_to_all(ConstBuffer in, Buffer out, const CallOptions& o) override {
    return on(in, out, o, [&](auto i, auto u, auto& p) { return inner_->all_to_all(i, u, p); });
  }
  Work all_to_allv(ConstBuffer in, std::span<const std::size_t> in_counts, Buffer out,
                   std::span<const std::size_t> out_counts, const CallOptions& o) override {
    return on(in, out, o, [&](auto i, auto u, auto& p) {
      return inner_->all_to_allv(i, in_counts, u, out_counts, p);
    });
  }
  Work barrier(const CallOptions& o) override { return inner_->barrier(o); }
  Work send(ConstBuffer data, int peer, std::uint32_t tag, const CallOptions& o) override {
    return on(data, Buffer{nullptr, 0, data.dtype}, o,
              [&](auto i, auto, auto& p) { return inner_->send(i, peer, tag, p); });
  }
  Work recv(Buffer data, int peer, std::uint32_t tag, const CallOptions& o) override {
    return on(ConstBuffer{nullptr, 0, data.dtype}, data, o,
              [&](auto, auto u, auto& p) { return inner_->recv(u, peer, tag, p); });
  }

  void begin_coalescing() override {
    inner_->begin_coalescing();
    const std::lock_guard lock(mutex_);
    batches_[std::this_thread::get_id()];
  }
  Work end_coalescing() override {
    std::vector<Work> works{inner_->end_coalescing()};
    const std::lock_guard lock(mutex_);
    for (Work& work : batches_[std::this_thread::get_id()]) works.push_back(std::move(work));
    batches_.erase(std::this_thread::get_id());
    return Work::all_of(std::move(works));
  }
  std::shared_ptr<Group> split(int color, int key) override {
    auto part = inner_->split(color, key);
    return part ? std::make_shared<OnDeviceGroup>(device_, std::move(part)) : nullptr;
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  std::string failure() const override { return inner_->failure(); }

 private:
  static constexpr Device kDevice{DeviceKind::cuda, 0};

  /// What is said to lie on a device already, or is not there, goes through as it is.
  template <typename Submit>
  Work on(ConstBuffer in, Buffer out, CallOptions options, const Submit& submit) {
    const auto odd = [](const ConstBuffer& b) {
      return b.device.kind != DeviceKind::cpu || (!b.data && b.count > 0);
    };
    if (odd(in) || odd(out)) return submit(in, out, options);
    auto memory = std::make_shared<Carried>(*device_, stream_, in, out);
    options.stream = &stream_;
    in = ConstBuffer(memory->device_in, in.count, in.dtype, kDevice);
    out = Buffer{memory->device_out, out.count, out.dtype, kDevice};
    const auto carried = std::make_shared<CarriedWork>(submit(in, out, options), memory);
    carried->watch();
    const std::lock_guard lock(mutex_);
    const auto batch = batches_.find(std::this_thread::get_id());
    if (batch != batches_.end()) batch->second.emplace_back(carried);
    return Work(carried);
  }

  const std::shared_ptr<DeviceDouble> device_;
  DeviceDouble::Queue stream_;
  const std::shared_ptr<Group> inner_;
  std::mutex mutex_;
  std::map<std::thread::id, std::vector<Work>> batches_;  // guarded by mutex_
};

/// A context all of whose groups are such.
class OnDeviceContext final : public Context {
 public:
  OnDeviceContext(std::shared_ptr<DeviceDouble> device, Context& inner)
      : device_(std::move(device)),
        inner_(inner),
        world_(std::make_shared<OnDeviceGroup>(device_, inner.world())) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const Config& config() const override { return inner_.config(); }
  std::shared_ptr<Metrics> metrics() const override { return inner_.metrics(); }
  Costs costs() const override { return inner_.costs(); }
  std::shared_ptr<Group> world() override { return world_; }
  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               std::chrono::milliseconds timeout,
                               const std::optional<Compression>& compression) override {
    return std::make_shared<OnDeviceGroup>(device_,
                                           inner_.group(name, members, timeout, compression));
  }
  void shutdown() override { inner_.shutdown(); }
  void before_fork() noexcept override {}
  void after_fork_in_parent() noexcept override {}
  void abandon_after_fork() noexcept override {}

 private:
  const std::shared_ptr<DeviceDouble> device_;
  Context& inner_;
  const std::shared_ptr<Group> world_;
};

}  // namespace mccl::testing
