// Links over TCP. The mesh makes them, because all connections to a process arrive and are proven
// at its only listener.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/mesh.h"
#include "transport/transport.h"

namespace mccl::rendezvous {

class TcpTransport final : public transport::Transport {
 public:
  explicit TcpTransport(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

  std::string_view name() const override { return "tcp"; }
  bool reaches(WorldRank) const override { return true; }
  std::string describe(WorldRank peer) const override {
    return "tcp, " + mesh_->describe(peer.number());
  }
  int rails(WorldRank peer) const override { return mesh_->rails(peer.number()); }
  std::vector<std::string> equal_ways(WorldRank peer) const override {
    return mesh_->equal_ways(peer.number());
  }
  void take_way(WorldRank peer, std::size_t way) override { mesh_->take_way(peer.number(), way); }

  transport::Making dial(WorldRank peer, const transport::LinkKey& key,
                         Clock::time_point deadline) override;
  transport::Making hear(WorldRank peer, const transport::LinkKey& key,
                         std::span<const std::byte> told) override;
  void cancel(WorldRank peer, const transport::LinkKey& key) override;

  void progress(std::vector<transport::LinkEvent>& events) override;
  std::vector<LostPeer> take_lost() override;
  std::string accepting_trouble() const override { return mesh_->accepting_trouble(); }
  void watch(std::vector<pollfd>& descriptors) const override { mesh_->watch(descriptors); }
  Clock::time_point next_deadline() const override { return mesh_->next_deadline(); }
  void abandon() noexcept override { mesh_->abandon(); }

 private:
  const std::unique_ptr<Mesh> mesh_;
};

}  // namespace mccl::rendezvous
