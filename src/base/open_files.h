// How many files, connections among them, this process may hold open.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace mccl {

/// Lets this process open as many files as the system lets it; does so once, so that a program
/// which sets another limit later keeps it. Every peer takes a few descriptors, and most systems
/// begin with a limit of 256 or 1024: that low for programs that use select(2), as MCCL does not.
void raise_open_files_limit();

std::size_t open_files_limit();

/// How many are open now; 0 where the system does not tell.
std::size_t open_files();

/// " (this process may have 1024; raise the limit with ulimit -n)" for an error that means that no
/// more can be opened; empty for every other.
std::string open_files_advice(int error);

/// Whether the errno means that no more files can be opened.
bool lacks_files(int error);

/// "rank 1 has no file descriptors left: too many open files (this process may have 1024; ...)".
std::string without_files(int rank, int error);

/// How long a rank without descriptors waits for some to be closed before it says so to its peers.
inline constexpr std::chrono::seconds kPatienceWithoutFiles{2};

}  // namespace mccl
