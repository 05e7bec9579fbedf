// Exchanges data between all ranks through the store, in stages. In each stage every rank publishes
// one text, its card. Rank 0 combines all cards into one text, which every rank reads. Each of
// these entries of the store carries a proof of the job's key, because other processes may write to
// the store.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "mccl/secret.h"
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

/// Returns the value of the store's entry `name` that holds `text`: the text, and a proof that its
/// writer has the key.
std::string with_proof(const SecretBytes& key, std::string_view name, std::string_view text);

class Exchange {
 public:
  /// `key` is that of the run (secret_of_run()). The store must outlive this object. All functions
  /// throw CorruptionError if an entry has no valid proof of the key. Rank 0 waits for the cards of
  /// the other ranks until `deadline`. The other ranks wait for rank 0's text until `grace` after
  /// the deadline, so that they receive rank 0's report of the missing ranks.
  Exchange(Store& store, SecretBytes key, int rank, int size, Clock::time_point deadline,
           milliseconds grace = std::chrono::seconds(1))
      : store_(store),
        key_(std::move(key)),
        rank_(rank),
        size_(size),
        deadline_(deadline),
        grace_(grace) {}

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
  void set(const std::string& name, std::string_view text) const;
  std::string get(const std::string& name, milliseconds timeout, std::string_view stage,
                  int writer) const;
  std::vector<bool> who_has_said(std::string_view stage) const;

  Store& store_;
  SecretBytes key_;
  int rank_;
  int size_;
  Clock::time_point deadline_;
  milliseconds grace_;
};

}  // namespace mccl::rendezvous
