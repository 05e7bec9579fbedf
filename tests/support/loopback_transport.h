// The smallest transport: it links ranks of one process. It is used by tests of the code that makes
// links, and serves as a model for new transports. It has all parts that a transport needs: a link
// (memory_link.h), a way for both ends to agree on making it, and a reply from an end that cannot
// make it.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "support/memory_link.h"
#include "transport/transport.h"

namespace mccl::testing {

/// Shared by all ranks of a process: the far ends of links that one rank has made and the other has
/// not yet taken. Thread-safe, since each rank may run on its own thread.
class LoopbackEnds {
 public:
  std::uint64_t put(std::unique_ptr<MemoryLink> end) {
    std::lock_guard lock(mutex_);
    ends_[++last_] = std::move(end);
    return last_;
  }
  /// Returns null if no end has that number.
  std::unique_ptr<MemoryLink> take(std::uint64_t number) {
    std::lock_guard lock(mutex_);
    auto found = ends_.extract(number);
    return found.empty() ? nullptr : std::move(found.mapped());
  }
  std::size_t size() {
    std::lock_guard lock(mutex_);
    return ends_.size();
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::unique_ptr<MemoryLink>> ends_;  // guarded by mutex_
  std::uint64_t last_ = 0;                                     // guarded by mutex_
};

class LoopbackTransport final : public transport::Transport {
 public:
  explicit LoopbackTransport(std::shared_ptr<LoopbackEnds> ends, std::string name = "loopback")
      : ends_(std::move(ends)), name_(std::move(name)) {}

  std::string_view name() const override { return name_; }
  bool reaches(WorldRank) const override { return true; }
  std::string describe(WorldRank) const override { return "the memory of this process"; }

  /// Makes both ends and offers the far one. The link is established when the peer has taken it.
  transport::Making dial(WorldRank peer, const transport::LinkKey& key,
                         Clock::time_point) override {
    if (broken) throw Error("it is broken here");
    auto [near, far] = MemoryLink::make();
    transport::Making offer;
    offer.blob = encode_number(ends_->put(std::move(far)));
    offered_[{peer, key}] = std::move(near);
    return offer;
  }

  /// Handles an offer, which holds a number, or the answer to an offer, which is empty.
  transport::Making hear(WorldRank peer, const transport::LinkKey& key,
                         std::span<const std::byte> told) override {
    transport::Making made;
    if (told.empty() != offered_.contains({peer, key})) {
      throw CorruptionError("an answer to a link that was not offered, or an offer for an answer");
    }
    if (told.empty()) {
      auto offered = offered_.extract({peer, key});
      made.link = std::move(offered.mapped());
      return made;
    }
    if (broken) throw Error("it is broken here");
    made.link = ends_->take(number_in(told));
    if (!made.link) throw CorruptionError("a link that nobody has made");
    made.blob = transport::Blob();
    return made;
  }

  void refuse(WorldRank, const transport::LinkKey&, std::span<const std::byte> told) override {
    if (!told.empty()) ends_->take(number_in(told));
  }
  void cancel(WorldRank peer, const transport::LinkKey& key) override {
    offered_.erase({peer, key});
  }

  bool broken = false;  ///< True if this end cannot make links.

 private:
  static transport::Blob encode_number(std::uint64_t number) {
    transport::Blob blob(sizeof number);
    std::memcpy(blob.data(), &number, blob.size());
    return blob;
  }
  static std::uint64_t number_in(std::span<const std::byte> told) {
    std::uint64_t number = 0;
    if (told.size() != sizeof number) throw CorruptionError("what is told names no link");
    std::memcpy(&number, told.data(), told.size());
    return number;
  }

  const std::shared_ptr<LoopbackEnds> ends_;
  const std::string name_;
  std::map<std::pair<WorldRank, transport::LinkKey>, std::unique_ptr<MemoryLink>> offered_;
};

}  // namespace mccl::testing
