// Passes a key to other processes of the same user and machine, through a file that no other user
// may open.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace mccl::rendezvous {

/// Owns the file and removes it on destruction.
class KeyFile {
 public:
  KeyFile() = default;
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

}  // namespace mccl::rendezvous
