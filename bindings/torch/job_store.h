// Gives torch access to the store of a job whose ranks may also use MLX, NumPy or C++. Process
// groups can use it even if no store of torch reaches all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mccl/config.h"
#include "mccl/meeting.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace mccl_torch {

/// The job's store as a Store of torch, with a prefix for torch's keys. Thread-safe.
class JobStore final : public c10d::Store {
 public:
  /// `joined` must have a store. `rank` and `size` are those of the job.
  JobStore(mccl::rendezvous::Joined joined, int rank, int size);
  ~JobStore() override;

  const mccl::rendezvous::Joined& joined() const { return *joined_; }
  /// Number of the job's ranks that use torch. Does not change after all of these ranks have opened
  /// this store.
  std::int64_t torch_ranks();

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  /// Returns false: the store cannot delete keys.
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  /// Throws NotImplementedError: the store does not count its keys.
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  std::string find(const std::string& key, std::chrono::milliseconds timeout);

  mccl::rendezvous::Joined* joined_;  ///< Owned; a forked child does not destroy it.
  const int size_;
  const int process_;
};

/// Joins the job that the settings and the environment describe. Throws torch's errors. Called with
/// the GIL held; releases it while it waits.
c10::intrusive_ptr<c10d::Store> open_job_store(const std::map<std::string, std::string>& settings);

/// Drops the stores that open_job_store() has kept. Called when the process ends.
void close_job_stores();

/// The JobStore behind torch's PrefixStores; null if they wrap a store of another kind.
JobStore* job_store_in(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace mccl_torch
