// A group that makes every call on memory of a device. A stream copies the host memory that the
// test passes to the device. Results are copied back when the call is done.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
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

/// Device copies of the memory of one call. Buffers that overlap on the host overlap on the device,
/// too.
class Carried {
 public:
  virtual ~Carried() = default;
  /// Copies results back to the host; called when the call is done.
  virtual void carry_back() const = 0;

  ConstBuffer in;
  Buffer out;
};

/// Copies the memory of a call to a device, and sets in the call's options how to wait for the
/// copy. Owned by a group, whose calling threads share it.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual std::shared_ptr<Carried> carry(const ConstBuffer& in, const Buffer& out,
                                         CallOptions& options) = 0;
};
using MakeCarrier = std::function<std::unique_ptr<Carrier>()>;

/// One contiguous range of the memory of a call. Input and output form one range if they overlap.
struct Stretch {
  const std::byte* begin;
  std::size_t bytes;
};
inline std::vector<Stretch> stretches_of(const ConstBuffer& in, const Buffer& out) {
  const auto* const a = static_cast<const std::byte*>(in.data);
  const auto* const b = static_cast<const std::byte*>(out.data);
  const bool apart = in.count == 0 || out.count == 0 || a + in.bytes() <= b || b + out.bytes() <= a;
  if (apart) return {{a, in.bytes()}, {b, out.bytes()}};
  const std::byte* const first = std::min(a, b);
  const std::byte* const last = std::max(a + in.bytes(), b + out.bytes());
  return {{first, static_cast<std::size_t>(last - first)}};
}

/// Copies to the memory of a device with streams.
class CarrierToDevice final : public Carrier {
 public:
  explicit CarrierToDevice(std::shared_ptr<DeviceDouble> device)
      : device_(std::move(device)), stream_(*device_) {}

  std::shared_ptr<Carried> carry(const ConstBuffer& in, const Buffer& out,
                                 CallOptions& options) override {
    constexpr Device kDevice{DeviceKind::cuda, 0};
    auto made = std::make_shared<Memory>();
    made->target = out;
    const std::vector<Stretch> stretches = stretches_of(in, out);
    std::vector<std::byte*> begins;
    for (const Stretch& one : stretches) begins.push_back(bring(*made, one));
    const auto at = [&](const void* data, std::size_t which) {
      return begins[which]
                 ? begins[which] + (static_cast<const std::byte*>(data) - stretches[which].begin)
                 : nullptr;
    };
    made->in = ConstBuffer(at(in.data, 0), in.count, in.dtype, kDevice);
    made->out = Buffer{at(out.data, stretches.size() - 1), out.count, out.dtype, kDevice};
    if (out.count > 0) made->result = device_->at(made->out.data);
    options.stream = &stream_;
    return made;
  }

 private:
  struct Memory final : Carried {
    void carry_back() const override {
      if (target.count > 0) std::memcpy(target.data, result, target.bytes());
    }
    std::vector<std::shared_ptr<ForbiddenMemory>> memories;
    Buffer target;
    const std::byte* result = nullptr;
  };

  /// Allocates device memory and enqueues the copy to it on the stream. A call that does not wait
  /// for the stream reads the memory before it is written.
  std::byte* bring(Memory& made, const Stretch& from) {
    if (from.bytes == 0) return nullptr;
    made.memories.push_back(device_->allocate(from.bytes));
    stream_.enqueue(
        [to = made.memories.back(), data = std::vector(from.begin, from.begin + from.bytes)] {
          std::memcpy(to->inside(), data.data(), data.size());
        });
    return made.memories.back()->outside();
  }

  const std::shared_ptr<DeviceDouble> device_;
  DeviceDouble::Queue stream_;
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
  OnDeviceGroup(MakeCarrier make, std::shared_ptr<Group> inner)
      : make_(std::move(make)), carrier_(make_()), inner_(std::move(inner)) {}

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
    return part ? std::make_shared<OnDeviceGroup>(make_, std::move(part)) : nullptr;
  }
  std::shared_ptr<Group> shrink(std::optional<std::chrono::milliseconds> timeout) override {
    return std::make_shared<OnDeviceGroup>(make_, inner_->shrink(timeout));
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  std::string failure() const override { return inner_->failure(); }

 private:
  /// Carries the buffers and submits the call. Buffers on a device, and null buffers with elements,
  /// are passed on unchanged.
  template <typename Submit>
  Work on(ConstBuffer in, Buffer out, CallOptions options, const Submit& submit) {
    const auto odd = [](const ConstBuffer& b) {
      return b.device.kind != DeviceKind::cpu || (!b.data && b.count > 0);
    };
    if (odd(in) || odd(out)) return submit(in, out, options);
    const auto memory = carrier_->carry(in, out, options);
    const auto carried =
        std::make_shared<CarriedWork>(submit(memory->in, memory->out, options), memory);
    carried->watch();
    const std::lock_guard lock(mutex_);
    const auto batch = batches_.find(std::this_thread::get_id());
    if (batch != batches_.end()) batch->second.emplace_back(carried);
    return Work(carried);
  }

  const MakeCarrier make_;
  const std::unique_ptr<Carrier> carrier_;
  const std::shared_ptr<Group> inner_;
  std::mutex mutex_;
  std::map<std::thread::id, std::vector<Work>> batches_;  // guarded by mutex_
};

/// A context whose groups are all OnDeviceGroups.
class OnDeviceContext final : public Context {
 public:
  OnDeviceContext(MakeCarrier make, Context& inner)
      : make_(std::move(make)),
        inner_(inner),
        world_(std::make_shared<OnDeviceGroup>(make_, inner.world())) {}
  OnDeviceContext(std::shared_ptr<DeviceDouble> device, Context& inner)
      : OnDeviceContext([device] { return std::make_unique<CarrierToDevice>(device); }, inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const Config& config() const override { return inner_.config(); }
  std::shared_ptr<Metrics> metrics() const override { return inner_.metrics(); }
  std::string flight_record() const override { return inner_.flight_record(); }
  Costs costs() const override { return inner_.costs(); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  std::shared_ptr<Group> world() override { return world_; }
  std::shared_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               std::chrono::milliseconds timeout,
                               const std::optional<Compression>& compression) override {
    return std::make_shared<OnDeviceGroup>(make_,
                                           inner_.group(name, members, timeout, compression));
  }
  void shutdown() override { inner_.shutdown(); }
  std::shared_ptr<Context> reconfigure(std::chrono::milliseconds timeout) override {
    return inner_.reconfigure(timeout);
  }
  void before_fork() noexcept override {}
  void after_fork_in_parent() noexcept override {}
  void abandon_after_fork() noexcept override {}

 private:
  const MakeCarrier make_;
  Context& inner_;
  const std::shared_ptr<Group> world_;
};

}  // namespace mccl::testing
