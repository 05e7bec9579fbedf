// Copies the memory of calls to the simulated GPU of a Mac, for on_device.h.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "support/metal_double.h"
#include "support/on_device.h"

namespace mccl::testing {

class CarrierToMetal final : public Carrier {
 public:
  CarrierToMetal(std::shared_ptr<MetalDouble> gpu, bool shared)
      : gpu_(std::move(gpu)), shared_(shared) {}

  std::shared_ptr<Carried> carry(const ConstBuffer& in, const Buffer& out,
                                 CallOptions& options) override {
    auto made = std::make_shared<Memory>(gpu_);
    made->target = out;
    const std::vector<Stretch> stretches = stretches_of(in, out);
    for (const Stretch& one : stretches) made->memories.push_back(bring(one));
    const auto at = [&](const ConstBuffer& buffer, std::size_t which) -> Buffer {
      if (buffer.count == 0) return {nullptr, 0, buffer.dtype};
      const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(buffer.data) -
                                                   stretches[which].begin);
      return metal_buffer({made->memories[which].get(), offset}, buffer.count, buffer.dtype);
    };
    made->in = at(in, 0);
    made->out = at(out, stretches.size() - 1);
    if (out.count > 0) {
      made->result = made->memories[stretches.size() - 1];
      made->offset = static_cast<std::size_t>(static_cast<const std::byte*>(out.data) -
                                              stretches.back().begin);
    }
    options.fence = gpu_->fence();
    return made;
  }

 private:
  struct Memory final : Carried {
    explicit Memory(std::shared_ptr<MetalDouble> of) : gpu(std::move(of)) {}
    ~Memory() override {
      for (const auto& memory : memories) gpu->forget(memory.get());
    }
    /// Copies on the GPU, like a caller that uses the result there.
    void carry_back() const override {
      if (!result) return;
      gpu->encode({result}, {},
                  [this] { std::memcpy(target.data, result->inside() + offset, target.bytes()); });
      gpu->finish();
    }

    const std::shared_ptr<MetalDouble> gpu;
    MetalDouble::Memories memories;
    MetalDouble::MemoryPtr result;
    std::size_t offset = 0;
    Buffer target;
  };

  MetalDouble::MemoryPtr bring(const Stretch& from) {
    auto memory = gpu_->make(std::max<std::size_t>(from.bytes, 1), shared_);
    gpu_->encode({}, {memory},
                 [to = memory, data = std::vector(from.begin, from.begin + from.bytes)] {
                   if (!data.empty()) std::memcpy(to->inside(), data.data(), data.size());
                 });
    return memory;
  }

  const std::shared_ptr<MetalDouble> gpu_;
  const bool shared_;
};

}  // namespace mccl::testing
