// Provides a key for a job without a configured one (MCCL_JOB_KEY).
//
// Rank 0 makes a random key, writes it to a file that only its user may open, and publishes the
// path in the store. Each other rank tries to read the file and reports the result in the store. If
// all succeed, the key was never in the store, and the file is removed. If one fails (it runs on
// another machine, as another user or in another container), rank 0 publishes a second key in the
// store until all ranks are connected. Every reader of the store then knows that key as well, and
// every rank warns about it.
//
// Other processes cannot change what rank 0 publishes: the store's server enforces it
// (kServersOwn). If an outsider answers in place of a rank that could read the file, that rank
// detects it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "mccl/config.h"
#include "mccl/store.h"

namespace mccl::rendezvous {

/// A file through which other processes of the same user and machine get a key, and which no other
/// user may open. Removed on destruction.
class KeyFile {
 public:
  /// Writes the file in the first of the folders where that succeeds. The path is empty if it
  /// succeeds in none of them.
  KeyFile(std::span<const std::string> folders, const std::string& key);
  ~KeyFile();
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Returns the key in a file that a KeyFile of this user wrote; empty for any other file. The path
/// may come from an untrusted process.
std::optional<std::string> read_key_file(const std::string& path);

/// Throws InvalidArgument if `require_key` is set and no key is set.
void check_required_key(const Config& config, int rank, int size);

/// Folders for a small file that only processes of this machine should see, best first: folders in
/// memory, then the folder for temporary files.
std::vector<std::string> private_folders();
std::vector<std::string> private_folders(const std::map<std::string, std::string>& environment);

struct KeyAgreement {
  int rank;
  int size;
  const Config& config;
  Store& store;
  const Log& log;
  Clock::time_point deadline;
  std::vector<std::string> folders = private_folders();  ///< Candidate folders for rank 0's file.
};

/// Returns the job's key: the configured one, or one that all ranks agree on. To agree, rank 0
/// makes two requests to the store and one per other rank; each other rank makes three. Throws
/// TimeoutError if a rank is missing.
std::string agree_on_key(const KeyAgreement& agreement);

/// Called once all ranks are connected and no rank needs a published key any more. Rank 0 then
/// overwrites the key in the store.
void take_back_key(const Config& config, int rank, Store& store);

}  // namespace mccl::rendezvous
