// Pipes between processes. Destructors close the ends.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/descriptor.h"

namespace mccl::cli {

struct Pipe {
  Descriptor reader;
  Descriptor writer;
};

/// Makes a pipe whose ends are closed by exec. Throws Error.
Pipe make_pipe();

/// Calls read(2), and retries if a signal interrupts it.
ssize_t read_some(int descriptor, void* to, std::size_t limit);

}  // namespace mccl::cli
