// Links through memory that the ranks of a node share. The dialing end offers a range of its arena,
// and the other end maps it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "node/neighbour.h"
#include "transport/shm/link.h"
#include "transport/transport.h"

namespace mccl::transport::shm {

class ShmTransport final : public Transport {
 public:
  /// `memory` must have an arena.
  explicit ShmTransport(std::shared_ptr<const node::SharedMemory> memory);

  std::string_view name() const override { return "shm"; }
  bool reaches(WorldRank peer) const override { return memory_->neighbour(peer) != nullptr; }
  std::string describe(WorldRank) const override { return "shared memory"; }

  Making dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) override;
  Making hear(WorldRank peer, const LinkKey& key, std::span<const std::byte> told) override;
  void refuse(WorldRank peer, const LinkKey& key, std::span<const std::byte> told) override;
  void cancel(WorldRank peer, const LinkKey& key) override;

  bool arm() override {
    sleeper_.fall_asleep();
    return true;
  }
  void disarm() override { sleeper_.wake_up(); }

 private:
  Making join(WorldRank peer, std::span<const std::byte> told);

  const std::shared_ptr<const node::SharedMemory> memory_;
  node::Sleeper sleeper_;
  /// Links offered by this end that the other end has not mapped yet.
  std::map<std::pair<WorldRank, LinkKey>, std::unique_ptr<ShmLink>> offered_;
};

}  // namespace mccl::transport::shm
