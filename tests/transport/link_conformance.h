// The fixture of link_conformance_test.cpp, which every transport's Link must pass. A transport's
// test makes a LinkFactory and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Tcp, LinkConformance, ::testing::Values(LinkFactory{"ipv4",
//   make_pair}));
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "transport/link.h"

namespace mccl::transport {

using LinkPair = std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>;

/// Blocks one end until the other end has acted.
class Waiter {
 public:
  virtual ~Waiter() = default;
  /// Announces a wait. The caller then checks once more; later events end wait().
  virtual void prepare() {}
  /// Ends the announcement without a wait.
  virtual void cancel() {}
  /// Blocks until an event. Returns false on timeout.
  virtual bool wait(const Link& link, short events, int timeout_ms) = 0;
};

/// Waits on the link's descriptor.
class Polling : public Waiter {
 public:
  bool wait(const Link& link, short events, int timeout_ms) override {
    pollfd entry = {link.descriptor(), events, 0};
    return ::poll(&entry, 1, timeout_ms) > 0;
  }
};

struct LinkFactory {
  std::string name;
  std::function<LinkPair()> connect;
  /// Makes a waiter for the first (0) or second (1) end of the pair that was connected last.
  std::function<std::unique_ptr<Waiter>(int end)> waiter = [](int) {
    return std::make_unique<Polling>();
  };
  bool needs_one_thread = false;  ///< True if both ends must be used by the same thread.
};

inline void PrintTo(const LinkFactory& factory, std::ostream* stream) { *stream << factory.name; }

using Bytes = std::vector<std::byte>;

class LinkConformance : public ::testing::TestWithParam<LinkFactory> {
 protected:
  void SetUp() override {
    std::tie(a_, b_) = GetParam().connect();
    ASSERT_TRUE(a_ && b_);
    waits_a_ = GetParam().waiter(0);
    waits_b_ = GetParam().waiter(1);
  }

  static Bytes pattern(std::size_t n, unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(n);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }

  static constexpr int kPatienceMs = 20'000;

  Waiter& waiter_of(const Link& link) const { return &link == a_.get() ? *waits_a_ : *waits_b_; }

  /// Repeats `attempt` until it returns true, and sleeps in between. Fails after a timeout, so that
  /// a broken transport cannot hang the test.
  template <typename Attempt>
  void until(Link& link, short events, Attempt attempt) {
    Waiter& waiter = waiter_of(link);
    while (!attempt()) {
      waiter.prepare();
      if (attempt()) return waiter.cancel();
      ASSERT_TRUE(waiter.wait(link, events, kPatienceMs)) << "no event on " << link.description();
    }
  }

  void write_all(Link& link, std::span<const std::byte> bytes) {
    until(link, POLLOUT, [&] {
      bytes = bytes.subspan(link.write(bytes));
      return bytes.empty();
    });
  }

  void read_all(Link& link, std::span<std::byte> bytes) {
    until(link, POLLIN, [&] {
      const std::size_t n = link.read(bytes);
      EXPECT_LE(n, bytes.size());
      bytes = bytes.subspan(std::min(n, bytes.size()));
      return bytes.empty();
    });
  }

  std::span<const std::byte> peek_until(Link& link, std::size_t at_least) {
    std::span<const std::byte> bytes;
    until(link, POLLIN, [&] { return !(bytes = link.peek(at_least)).empty(); });
    return bytes;
  }

  /// Writes until the link accepts nothing more. Returns the bytes that it accepted.
  static Bytes fill(Link& link, unsigned seed) {
    const Bytes block = pattern(1 << 20, seed);
    Bytes taken;
    while (const std::size_t n = link.write(block)) {
      taken.insert(taken.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(n));
    }
    return taken;
  }

  /// Returns false if the link has not departed in time.
  static bool departs(Link& link) {
    const Clock::time_point limit = Clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (!link.depart() && Clock::now() < limit) std::this_thread::yield();
    return link.depart();
  }

  /// Reads until the link throws, and returns the bytes read before.
  Bytes drain(Link& link) {
    Bytes all;
    Bytes piece(8192);
    try {
      while (!HasFatalFailure()) {
        std::size_t n = 0;
        until(link, POLLIN, [&] { return (n = link.read(piece)) > 0; });
        all.insert(all.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(n));
      }
    } catch (const LinkClosed&) {
    }
    return all;
  }

  std::unique_ptr<Link> a_, b_;
  std::unique_ptr<Waiter> waits_a_, waits_b_;
};

}  // namespace mccl::transport
