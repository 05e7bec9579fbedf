// Exchanges data between all ranks through the store, in stages. In each stage every rank publishes
// one text, its card. Rank 0 combines all cards into one text, which every rank reads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "mccl/store.h"
#include "rendezvous/connections/names.h"

namespace mccl::rendezvous {

/// Lists the absent ranks, then the present ones: "ranks 1 and 3 have not arrived; 0 and 2 have".
/// `present` is indexed by rank; `done` is the participle in the text, here "arrived".
std::string roll_call(const std::vector<bool>& present, std::string_view done = "arrived");

/// Returns the value of a key without waiting for the key to be set; empty if it is not set.
std::optional<std::string> find_now(Store& store, const std::string& key);

/// Store key, within a run of the job. Its value describes the last process that was refused
/// because another process had already joined with the same rank. The refused process may be a
/// missing rank that was started with the wrong MCCL_RANK.
inline constexpr const char* kCameTwice = "twice";

class Exchange {
 public:
  /// The store must outlive this object. Rank 0 waits for the cards of the other ranks until
  /// `deadline`. The other ranks wait for rank 0's text until `grace` after the deadline, so that
  /// they receive rank 0's report of the missing ranks.
  Exchange(Store& store, int rank, int size, Clock::time_point deadline,
           milliseconds grace = std::chrono::seconds(1))
      : store_(store), rank_(rank), size_(size), deadline_(deadline), grace_(grace) {}

  /// Returns the texts (cards) that all ranks publish in the stage, in rank order.
  std::vector<std::string> all_gather(std::string_view stage, const std::string& card) const;

  /// Returns the texts of a stage that all ranks have completed.
  std::vector<std::string> published(std::string_view stage) const {
    return split(read(stage), stage);
  }

  /// Function by which rank 0 combines the cards of a stage into the text that decide() returns on
  /// every rank.
  using Decide = std::function<std::string(const std::vector<std::string>& cards)>;
  std::string decide(std::string_view stage, const std::string& card, const Decide& decide) const;

 private:
  std::vector<std::string> split(std::string_view table, std::string_view stage) const;
  std::vector<std::string> collect(std::string_view stage, const std::string& card) const;
  void publish(std::string_view stage, std::string_view text) const;
  std::string read(std::string_view stage) const;
  std::vector<bool> who_has_said(std::string_view stage) const;

  Store& store_;
  int rank_;
  int size_;
  Clock::time_point deadline_;
  milliseconds grace_;
};

}  // namespace mccl::rendezvous
