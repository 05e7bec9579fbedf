// A key that goes from one process of a user to others of the same user and machine, past all the
// rest: through a file that nobody else may open.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace mccl::rendezvous {

/// The file; gone with the object.
class KeyFile {
 public:
  KeyFile() = default;
  /// In the first of the folders that takes it. Where none does, the path is empty.
  KeyFile(std::span<const std::string> folders, const std::string& key);
  ~KeyFile();
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// What is in a file that a KeyFile of this user made; nothing for any other file. The path may
/// come from a stranger.
std::optional<std::string> read_key_file(const std::string& path);

}  // namespace mccl::rendezvous
