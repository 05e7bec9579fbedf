// Counts the files, including connections, that this process has open, raises the limit of open
// files, and describes errors of system calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace mccl {

/// Raises this process's limit of open files to the maximum that the system allows, because every
/// peer needs a few descriptors. Acts once per process, so that the program may set another limit
/// later. Most systems have a default limit of 256 or 1024, because programs that use select(2)
/// support no more files. MCCL does not use select(2).
void raise_open_files_limit();

std::size_t open_files_limit();

/// The number of files open now; 0 if the system does not report it.
std::size_t open_files();

/// If the errno means that no more files can be opened, returns advice for a message: " (this
/// process may open 1024; raise the limit with ulimit -n)". Otherwise returns empty text.
std::string open_files_advice(int error);

/// Returns the system's text for an errno, with open_files_advice(): "Connection refused".
std::string describe_errno(int error);

/// True if the errno means that no more files can be opened.
bool lacks_files(int error);

/// Returns the text of an error message: "rank 1 has no file descriptors left: too many open files
/// (this process may open 1024; ...)".
std::string without_files(int rank, int error);

/// Time for which a rank without a free descriptor waits for a descriptor to be closed, before it
/// reports the shortage to its peers.
inline constexpr std::chrono::seconds kPatienceWithoutFiles{2};

}  // namespace mccl
