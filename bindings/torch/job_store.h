// The store of a job that meets as MLX's, NumPy's and C++'s do, for torch: so that process groups
// can be made in it, also where no store of torch's own reaches all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mccl/config.h"
#include "mccl/meeting.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace mccl_torch {

/// Thread-safe. Keys of torch's lie under a prefix of their own.
class JobStore final : public c10d::Store {
 public:
  /// `joined` has a store.
  explicit JobStore(mccl::rendezvous::Joined joined);
  ~JobStore() override;

  const mccl::rendezvous::Joined& joined() const { return *joined_; }
  /// How many ranks of the job are torch's. All have been counted once the ranks have met.
  std::int64_t torch_ranks();

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  /// Nothing is ever taken back: false.
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  /// Throws: nobody counts.
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  std::string find(const std::string& key, std::chrono::milliseconds timeout);

  mccl::rendezvous::Joined* joined_;  ///< Owned, but never destroyed by the child of a fork.
  const int process_;
};

/// Joins the job that the settings and the environment tell of. Throws torch's errors. Called with
/// the GIL, which it lets go of while it waits.
c10::intrusive_ptr<c10d::Store> open_job_store(const std::map<std::string, std::string>& settings);

/// The job store behind torch's prefixes; null when it is another store.
JobStore* job_store_in(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace mccl_torch
