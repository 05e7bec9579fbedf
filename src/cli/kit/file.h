// Reads and writes files whose paths users give, and makes temporary folders.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace mccl::cli {

/// Throws InvalidArgument if the file cannot be read or is larger than 64 MiB; the message begins
/// with `where` and says what was `expected`.
std::string read_file(std::string_view where, const std::string& path, std::string_view expected);

/// Throws InvalidArgument if the file cannot be written, unless `path` is empty. Called before
/// measurements that may take minutes, so that the results are not lost.
void check_writable(const std::string& flag, const std::string& path);

void write_file(const std::string& path, const std::string& text);

/// Writes the file atomically (see replace_file()). If the texts differ, keeps the old file as
/// PATH.bak. Writes directly to a path that is no regular file, such as /dev/stdout.
void write_keeping_old(const std::string& path, const std::string& text);

/// Makes a folder that only this user can enter. Its name begins with `name`.
std::string make_temporary_folder(const std::string& name);

/// A temporary folder that its destructor removes.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name) : path_(make_temporary_folder(name)) {}
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace mccl::cli
