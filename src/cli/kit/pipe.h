// Pipes between processes, whose ends close themselves.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/descriptor.h"

namespace mccl::cli {

struct Pipe {
  Descriptor reader;
  Descriptor writer;
};

/// Closed by exec. Throws Error.
Pipe make_pipe();

/// As read(), but a signal does not end it.
ssize_t read_some(int descriptor, void* to, std::size_t limit);

}  // namespace mccl::cli
