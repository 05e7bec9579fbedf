// Reads and writes files whose paths users give, and makes temporary folders.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace mccl::cli {

/// Returns the contents of a file; empty if it cannot be read.
std::string contents_of(const std::filesystem::path& path);

/// Returns the contents of a file. Throws InvalidArgument if the file cannot be read or is larger
/// than 64 MiB; the message begins with `where` and says what was `expected`.
std::string read_file(std::string_view where, const std::string& path, std::string_view expected);

/// Throws InvalidArgument if the file cannot be written; the message begins with `flag`. Commands
/// call this function before measurements that may take minutes, so that the results are not lost.
/// An empty path is valid.
void check_writable(const std::string& flag, const std::string& path);

/// Writes the file. Throws Error if that fails; the message contains the path.
void write_file(const std::string& path, const std::string& text);

/// Writes the file atomically: a reader finds either the whole old text or the whole new one. If
/// the texts differ, keeps the old file as PATH.bak. If `path` is not a regular file, such as
/// /dev/stdout, writes to it directly. Throws Error on failure.
void write_keeping_old(const std::string& path, const std::string& text);

/// Makes a folder that only this user can enter. Its name begins with `name`. Throws Error on
/// failure.
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
