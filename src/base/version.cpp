#include "base/version.h"

namespace mccl {

std::string_view version() { return MCCL_VERSION; }

}  // namespace mccl
