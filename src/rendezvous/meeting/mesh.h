// Makes connections between the processes of a job. Each process listens and dials. The caller gets
// a connection only after both sides have proved that they belong to the job.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cabling.h"
#include "base/clock.h"
#include "base/log.h"
#include "mccl/config.h"
#include "rendezvous/connections/accepting.h"
#include "rendezvous/connections/binding.h"
#include "rendezvous/connections/candidates.h"
#include "rendezvous/connections/dialing.h"
#include "rendezvous/meeting/repairs.h"
#include "transport/transport.h"

namespace mccl::rendezvous {

class Wiring;

struct MeshOptions {
  int rank = 0;
  int size = 1;
  Config config;
  SecretBytes job_key;  ///< Key of this run of the job; replaces the key in `config`.
  Log log;
  std::function<void()> on_refused;  ///< Called for every refused connection.
  Reach reach = Reach::any_host;
  /// Null if all ranks reach each other directly. Otherwise the Wiring also provides a listener,
  /// for relayed connections.
  std::shared_ptr<Wiring> wiring = nullptr;
  double ranks_per_core = 1;  ///< See processes_per_core(). Encryption uses the cores left.
  std::function<void()> on_repaired = {};  ///< Called for every broken connection replaced.
};

/// This process's listener, and its dials to other ranks. While the ranks meet, the Mesh makes this
/// rank's control connections, which progress() reports as links. Afterwards it serves as the
/// transport "tcp". Only the constructor may block (name resolution).
///
/// progress() reports dials that failed, and authenticated peers whose settings differ from those
/// of this rank. Connections of processes that do not belong to the job are refused and counted,
/// but cause no event.
class Mesh final : public transport::Transport {
 public:
  /// Binds the listener. Throws InvalidArgument, with advice, if the port is taken or equals
  /// MASTER_PORT, or if an address or interface does not exist.
  explicit Mesh(MeshOptions options);
  ~Mesh() override { abandon(); }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  /// The addresses of this rank; the caller must publish them.
  const Endpoint& endpoint() const { return endpoint_; }
  /// Sets the endpoints of all ranks, including this rank's endpoint. Throws InvalidArgument if two
  /// endpoints have the same rank.
  void set_endpoints(std::vector<Endpoint> endpoints);
  /// Must be called once all ranks are connected. From this call on, connections are accepted at a
  /// limited rate, connections from the peers' addresses take precedence, and further control
  /// connections cause no event.
  void everyone_is_here();
  /// Key: a rank without a direct cable to this rank. Value: the first relay on the path to that
  /// rank.
  std::map<int, int> relayed() const;

  std::string_view name() const override { return "tcp"; }
  bool reaches(WorldRank) const override { return true; }
  /// Describes the links to a peer and the interfaces of this rank that these links use: "tcp, 2
  /// links, en0 10 Gbit/s MTU 1500". Omits the interfaces before the control connection to the peer
  /// exists.
  std::string describe(WorldRank peer) const override;
  /// Number of rails (parallel connections) to the peer, equal on both ranks. Without cables: the
  /// larger of the two ranks' numbers of explicitly listed addresses, or 1 if neither rank lists
  /// addresses. With cables: the number of cables of the pair, limited to 1..64.
  int rails(WorldRank peer) const override { return rails_of(peer.number()); }
  /// Describes the equally good paths to the peer, as far as this host's system reports, such as
  /// "eth1, to 10.0.0.2". Returns one empty string if the pair has several rails, or if the job
  /// uses cables.
  std::vector<std::string> equal_ways(WorldRank peer) const override;
  void take_way(WorldRank peer, std::size_t way) override { taken_[peer.number()] = way; }

  /// Tries all addresses of the peer repeatedly, best route first. A dial to a peer on this host
  /// fails early if all its addresses refuse connections for kRefusedFor, because a live peer
  /// always listens.
  transport::Making dial(WorldRank peer, const LinkKey& key, Clock::time_point deadline) override;
  transport::Making hear(WorldRank peer, const LinkKey& key,
                         std::span<const std::byte> blob) override;
  void cancel(WorldRank peer, const LinkKey& key) override;

  void suspect(WorldRank peer) override {
    if (repairs_) repairs_->suspect_all(peer.number());
  }
  std::vector<transport::Receipt> take_receipts() override {
    return repairs_ ? repairs_->take_receipts() : std::vector<transport::Receipt>();
  }
  void hear(const transport::Receipt& receipt) override {
    if (repairs_) repairs_->hear(receipt);
  }
  void progress(std::vector<transport::LinkEvent>& events) override;
  /// Returns the peers whose connections used a cable that was cut since the last call.
  std::vector<LostPeer> take_lost() override;
  std::string accepting_trouble() const override { return acceptor_->trouble(Clock::now()); }
  void watch(std::vector<pollfd>& descriptors) const override;
  Clock::time_point next_deadline() const override;
  void abandon() noexcept override;

 private:
  const Endpoint& endpoint_of(int peer) const {
    return endpoints_.at(static_cast<std::size_t>(peer));
  }
  /// Returns the name of the peer's host; empty until the endpoints are known.
  std::string host_of(int peer) const {
    const auto index = static_cast<std::size_t>(peer);
    return index < endpoints_.size() ? endpoints_[index].host_name : std::string();
  }
  int rails_of(int peer) const;
  std::string_view kind() const { return self_.encryption ? "encrypted tcp" : "tcp"; }
  /// Returns the first relay on the path to the peer; -1 if connections are direct.
  int relay_to(int peer) const;
  bool goes_along(const Cable& cable, int peer) const;
  std::vector<Candidate> detours_of(const RepairedLink& about) const;
  void fill_in_wired(DialRequest& request) const;
  std::vector<Candidate> candidates_of(int peer, std::uint8_t rail) const;
  transport::LinkEvent established(int peer, const LinkKey& key, Socket socket, bool dialled_here,
                                   std::uint64_t link_number);
  transport::LinkEvent result_of(Dial& dial);
  void make_repairs();
  std::optional<Address> listener_of(int peer, const Address& end) const;
  std::optional<Address> own_end(int peer, int rail) const;
  std::vector<Address> addresses_of(int peer) const;

  MeshOptions options_;
  const Party self_;
  /// Sends the bytes that encrypted links have accepted, but that the kernel has not taken yet.
  std::shared_ptr<transport::tcp::Outbox> outbox_;
  Interfaces interfaces_;
  std::vector<Endpoint> endpoints_;  ///< In rank order; set by set_endpoints().
  Endpoint endpoint_;
  std::optional<Acceptor> acceptor_;
  std::list<Dial> dials_;
  /// Local addresses of control connections, by peer.
  std::map<int, Address> own_ends_;
  /// Key: a peer. Value: the index in equal_ways() of the selected path.
  std::map<int, std::size_t> taken_;
  std::shared_ptr<Repairs> repairs_;  ///< Null if broken connections are not replaced.
  std::uint64_t connections_ = 0;     ///< Number of established connections.
  bool are_meeting_ = true;
};

}  // namespace mccl::rendezvous
