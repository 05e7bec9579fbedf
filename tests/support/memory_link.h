// A Link in memory: two ends in one process that pass bytes through a queue of a chosen capacity.
// Tests use it to control how many bytes are in flight and in which order the ends move. A test of
// a hostile peer writes arbitrary bytes at its own end.
//
// Each end may be used by its own thread.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transport/link.h"

namespace mccl::testing {

/// State shared by both ends of a MemoryLink.
struct MemoryPath {
  /// The state of one reading end.
  struct Side {
    std::deque<std::byte> bytes;  ///< Bytes in flight to this end.
    bool left = false;
    bool withdrawn = false;    ///< True once this end has called withdraw_memory().
    std::uint64_t events = 0;  ///< Number of the other end's actions, for wait().
  };

  explicit MemoryPath(std::size_t bytes_each_way) : capacity(bytes_each_way) {}

  const std::size_t capacity;
  bool lends_memory = false;  ///< Set before the ends are used; see MemoryLink::lend_memory().
  std::mutex mutex;
  std::condition_variable changed;
  std::array<Side, 2> sides;  // guarded by mutex
};

class MemoryLink final : public transport::Link {
 public:
  using Pair = std::pair<std::unique_ptr<MemoryLink>, std::unique_ptr<MemoryLink>>;

  static constexpr std::size_t kUsualCapacity = std::size_t{64} << 10;

  /// Makes two ends; each direction holds up to `capacity` bytes before writes are refused.
  static Pair make(std::size_t capacity = kUsualCapacity, std::string first_peer = "rank 1",
                   std::string second_peer = "rank 0") {
    const auto path = std::make_shared<MemoryPath>(capacity);
    return {std::unique_ptr<MemoryLink>(new MemoryLink(path, 0, std::move(first_peer))),
            std::unique_ptr<MemoryLink>(new MemoryLink(path, 1, std::move(second_peer)))};
  }

  ~MemoryLink() override {
    std::lock_guard lock(path_->mutex);
    mine().left = true;
    wake_peer();
  }

  std::size_t write(std::span<const std::byte> first,
                    std::span<const std::byte> second = {}) override {
    std::lock_guard lock(path_->mutex);
    if (peer_gone_ || theirs().left) fail();
    const std::size_t written = put(first) + put(second);
    if (written > 0) wake_peer();
    return written;
  }

  std::span<const std::byte> peek(std::size_t at_least) override {
    if (at_least > peek_capacity()) {
      throw InvalidArgument(fmt::format("peek of {} bytes: at most {} fit ({})", at_least,
                                        peek_capacity(), description()));
    }
    at_least = std::max<std::size_t>(at_least, 1);
    if (arrived_.size() < at_least) receive();
    if (arrived_.size() >= at_least) return arrived_;
    fail_if_ended();
    return {};
  }

  void consume(std::size_t n) override {
    if (n > arrived_.size()) {
      throw InvalidArgument(fmt::format("cannot consume {} bytes: only {} are available ({})", n,
                                        arrived_.size(), description()));
    }
    arrived_.erase(arrived_.begin(), arrived_.begin() + static_cast<std::ptrdiff_t>(n));
  }

  std::size_t peek_capacity() const override { return std::size_t{64} << 10; }

  std::size_t read(std::span<std::byte> destination) override {
    std::size_t taken = 0;
    while (taken < destination.size() && (!arrived_.empty() || receive())) {
      const std::size_t n = std::min(arrived_.size(), destination.size() - taken);
      std::memcpy(destination.data() + taken, arrived_.data(), n);
      consume(n);
      taken += n;
    }
    if (taken == 0 && !destination.empty()) fail_if_ended();
    return taken;
  }

  int descriptor() const override { return -1; }

  /// Lets each end copy from the memory of the other, which is in the same process.
  void lend_memory() { path_->lends_memory = true; }
  /// This end's read_peer() fails from now on, as if the system refused it.
  void refuse_memory() { refuses_memory_ = true; }
  bool lends_memory() const override { return path_->lends_memory; }
  bool read_peer(std::uint64_t address, std::span<std::byte> to) override {
    if (refuses_memory_ || !path_->lends_memory) return false;
    if (!to.empty()) std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    std::lock_guard lock(path_->mutex);
    if (theirs().left || theirs().withdrawn) fail();
    return true;
  }
  void withdraw_memory() noexcept override {
    std::lock_guard lock(path_->mutex);
    mine().withdrawn = true;
  }

  std::size_t unsent() const override {
    std::lock_guard lock(path_->mutex);
    return theirs().bytes.size();
  }
  bool depart() noexcept override { return true; }  // bytes in flight stay for the peer to read
  void lose_peer(transport::Loss) override { peer_gone_ = true; }
  std::string description() const override { return fmt::format("memory link with {}", peer_); }

  /// Returns how often the other end has done something that this end may wait for.
  std::uint64_t events() const {
    std::lock_guard lock(path_->mutex);
    return mine().events;
  }
  /// Blocks until events() exceeds `seen`. Returns false on timeout.
  bool wait(std::uint64_t seen, std::chrono::milliseconds timeout) const {
    std::unique_lock lock(path_->mutex);
    return path_->changed.wait_for(lock, timeout, [&] { return mine().events > seen; });
  }

 private:
  MemoryLink(std::shared_ptr<MemoryPath> path, std::size_t end, std::string peer)
      : path_(std::move(path)), end_(end), peer_(std::move(peer)) {}

  MemoryPath::Side& mine() const { return path_->sides[end_]; }
  MemoryPath::Side& theirs() const { return path_->sides[1 - end_]; }

  void wake_peer() {
    ++theirs().events;
    path_->changed.notify_all();
  }

  std::size_t put(std::span<const std::byte> bytes) {
    std::deque<std::byte>& queue = theirs().bytes;
    const std::size_t n = std::min(bytes.size(), path_->capacity - queue.size());
    queue.insert(queue.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }

  /// Moves bytes in flight to `arrived_`, as many as fit there. Returns false if there are none.
  bool receive() {
    std::lock_guard lock(path_->mutex);
    std::deque<std::byte>& queue = mine().bytes;
    const std::size_t n = std::min(queue.size(), peek_capacity() - arrived_.size());
    if (n == 0) return false;
    const auto end = queue.begin() + static_cast<std::ptrdiff_t>(n);
    arrived_.insert(arrived_.end(), queue.begin(), end);
    queue.erase(queue.begin(), end);
    wake_peer();
    return true;
  }

  void fail_if_ended() const {
    std::lock_guard lock(path_->mutex);
    if ((peer_gone_ || theirs().left) && mine().bytes.empty()) fail();
  }

  [[noreturn]] void fail() const {
    throw transport::LinkClosed(fmt::format("lost the connection to {}: it {} ({})", peer_,
                                            peer_gone_ ? "is gone" : "has closed its end",
                                            description()));
  }

  const std::shared_ptr<MemoryPath> path_;
  const std::size_t end_;
  const std::string peer_;
  std::vector<std::byte> arrived_;  ///< Received bytes that are not consumed yet.
  bool peer_gone_ = false;
  bool refuses_memory_ = false;
};

}  // namespace mccl::testing
