#include "mccl/error.h"

namespace mccl {

const char* Error::what() const noexcept { return std::runtime_error::what(); }
const char* InvalidArgument::what() const noexcept { return Error::what(); }
const char* TimeoutError::what() const noexcept { return Error::what(); }
const char* PeerError::what() const noexcept { return Error::what(); }
const char* MismatchError::what() const noexcept { return Error::what(); }
const char* AbortedError::what() const noexcept { return Error::what(); }
const char* CorruptionError::what() const noexcept { return Error::what(); }

}  // namespace mccl
