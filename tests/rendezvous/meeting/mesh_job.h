// Drives the meshes of a whole job on one thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mccl/error.h"
#include "rendezvous/connections/conversation.h"
#include "rendezvous/meeting/mesh.h"
#include "transport/tcp/listener.h"

namespace mccl::rendezvous {

using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::LinkEvent;

inline Config loopback_config(const std::string& listen_addr = "127.0.0.1") {
  Config config;
  config.port_base = 0;
  config.listen_addr = listen_addr;
  return config;
}

struct Member {
  std::unique_ptr<Mesh> mesh;
  std::vector<LinkEvent> events;
  int refused = 0;

  const LinkEvent* event_of(int peer) const {
    for (const LinkEvent& event : events) {
      if (event.peer == WorldRank(peer)) return &event;
    }
    return nullptr;
  }
};

class Job {
 public:
  explicit Job(int size, Config config = loopback_config(), std::string key = "the job's key")
      : size_(size), key_(std::move(key)) {
    for (int rank = 0; rank < size; ++rank) join(rank, config);
  }

  Member& operator[](int rank) { return *members_[static_cast<std::size_t>(rank)]; }

  MeshOptions options(int rank, const Config& config, Member* member) const {
    return {rank, size_, config, key_, Log(rank, LogLevel::off), [member] {
              ++member->refused; }};
  }

  /// Makes or replaces the mesh of a rank.
  Member& join(int rank, const Config& config) {
    if (members_.size() <= static_cast<std::size_t>(rank)) members_.resize(rank + 1);
    auto& member = members_[static_cast<std::size_t>(rank)];
    member = std::make_unique<Member>();
    member->mesh = std::make_unique<Mesh>(options(rank, config, member.get()));
    return *member;
  }
  Member& join(MeshOptions given) {
    auto& member = members_[static_cast<std::size_t>(given.rank)];
    member = std::make_unique<Member>();
    given.on_refused = [raw = member.get()] { ++raw->refused; };
    member->mesh = std::make_unique<Mesh>(std::move(given));
    return *member;
  }
  void leave(int rank) { members_[static_cast<std::size_t>(rank)].reset(); }

  std::vector<Endpoint> endpoints() const {
    std::vector<Endpoint> all;
    for (const auto& member : members_) all.push_back(member->mesh->endpoint());
    return all;
  }
  void exchange_endpoints() {
    const std::vector<Endpoint> all = endpoints();
    for (auto& member : members_) member->mesh->set_endpoints(all);
  }

  /// Drives `other` whenever this job is driven.
  void drive_beside(Job& other) { beside_ = &other; }

  /// Drives all meshes until `finished` returns true, and fails the test after `patience`.
  void drive_until(const std::function<bool()>& finished, seconds patience = seconds(30)) {
    const Clock::time_point limit = Clock::now() + patience;
    for (;;) {
      std::vector<pollfd> descriptors;
      Clock::time_point wake = limit;
      drive(descriptors, wake);
      if (beside_ != nullptr) beside_->drive(descriptors, wake);
      if (finished()) return;
      ASSERT_LT(Clock::now(), limit) << "the meshes have not reached the expected state in time";
      ::poll(descriptors.data(), descriptors.size(), milliseconds_until(wake));
    }
  }

  std::size_t event_count() const {
    std::size_t count = 0;
    for (const auto& member : members_) count += member == nullptr ? 0 : member->events.size();
    return count;
  }

 private:
  void drive(std::vector<pollfd>& descriptors, Clock::time_point& wake) {
    for (auto& member : members_) {
      if (member == nullptr) continue;
      member->mesh->progress(member->events);
      member->mesh->watch(descriptors);
      wake = std::min(wake, member->mesh->next_deadline());
    }
  }

  int size_;
  std::string key_;
  std::vector<std::unique_ptr<Member>> members_;
  Job* beside_ = nullptr;
};

inline bool has_ipv6() {
  try {
    const transport::tcp::Listener probe(*transport::tcp::Address::parse_numeric("::1", 0), 0);
    return true;
  } catch (const transport::tcp::BindError&) {
    return false;
  }
}

inline Clock::time_point in(milliseconds time) { return Clock::now() + time; }

/// Sends a text over a link and expects it at the other end. Both links belong to this thread.
inline void expect_carries(transport::Link& from, transport::Link& to, const std::string& text) {
  ASSERT_EQ(from.write(std::as_bytes(std::span(text))), text.size());
  from.release();
  std::string got(text.size(), '\0');
  std::size_t arrived = 0;
  while (arrived < got.size()) {
    const std::size_t n = to.read(std::as_writable_bytes(std::span(got)).subspan(arrived));
    arrived += n;
    if (n > 0) continue;
    ASSERT_TRUE(wait_for(to.descriptor(), POLLIN, in(seconds(20)))) << to.description();
  }
  EXPECT_EQ(got, text);
}

}  // namespace mccl::rendezvous
