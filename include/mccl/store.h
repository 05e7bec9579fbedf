// A small key-value store that all ranks of a job can reach, and through which they find each
// other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "mccl/config.h"
#include "mccl/export.h"
#include "mccl/secret.h"

namespace mccl {

class Metrics;

/// Key-value store with values of arbitrary bytes. Thread-safe. A store holds only what ranks need
/// to find each other: keys of at most 1 KiB, values of at most 1 MiB, 64 MiB in all. Beyond these
/// limits calls throw InvalidArgument. A TCP store throws PeerError if the connection to rank 0 is
/// lost.
class MCCL_API Store {
 public:
  virtual ~Store() = default;
  /// Sets the value of `key`, replacing any older value.
  virtual void set(const std::string& key, std::string_view value) = 0;
  /// Blocks until the key exists and returns its value. Throws TimeoutError after `timeout`; the
  /// message contains the key.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds `amount` to a counter that starts at 0, and returns the new value. Throws InvalidArgument
  /// if the key holds no counter, or if the sum overflows.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
};

/// Makes a store for ranks that are threads of one process; all of them must use this one object.
MCCL_API std::shared_ptr<Store> make_memory_store();

/// Options for logging and counting the connections that rank 0's store refuses.
struct StoreReport {
  LogOptions log = {};
  std::shared_ptr<Metrics> metrics;  ///< May be null.
};

/// Makes a store on TCP. Rank 0 serves it at `address` ("host:port"). Other ranks connect to it and
/// retry until `timeout` has passed. Each client must prove that it knows the job key (see
/// Config::job_key). With an empty key, each client must run on the host of rank 0 and as the same
/// user. It proves this by reading a file that rank 0 creates.
///
/// The connections are encrypted, with keys derived from `job_key` or that file, if the environment
/// sets MCCL_ENCRYPTION=on (Config::encryption), which must be so for the server and all clients.
/// Settings that a program makes in another way do not affect the store.
///
/// Throws InvalidArgument if `rank` is negative, if there is no key and the address belongs to
/// another host, or if a setting of encryption in the environment is invalid.
MCCL_API std::shared_ptr<Store> make_tcp_store(const std::string& address, int rank,
                                               const SecretBytes& job_key,
                                               std::chrono::milliseconds timeout,
                                               const StoreReport& report = {});

}  // namespace mccl
