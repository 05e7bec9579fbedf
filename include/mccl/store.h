// A small key-value store that all ranks of a job can reach; how they find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mccl/export.h"

namespace mccl {

class Metrics;

/// Thread-safe. Values are bytes. A store is for what ranks need to meet: keys of at most 1 KiB,
/// values of at most 1 MiB, 64 MiB in all; what is beyond throws InvalidArgument.
class MCCL_API Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, std::string_view value) = 0;
  /// Waits until the key exists. Throws TimeoutError that names the key.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds to a counter that starts at 0; returns the new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
};

/// For ranks that are threads of one process.
MCCL_API std::shared_ptr<Store> make_memory_store();

/// What rank 0 says and counts of strangers that it turns away from the store.
struct StoreReport {
  std::string log_level = "WARN";
  std::shared_ptr<Metrics> metrics;  ///< May be null.
};

/// Served by rank 0 at `address` ("host:port"); other ranks connect to it, retrying until
/// `timeout`. Every connection proves the job key (see Config::job_key); without a key anyone who
/// can reach the address may read and write the store.
MCCL_API std::shared_ptr<Store> make_tcp_store(const std::string& address, int rank,
                                               const std::string& job_key,
                                               std::chrono::milliseconds timeout,
                                               const StoreReport& report = {});

}  // namespace mccl
