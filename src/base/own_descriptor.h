// Descriptors 0, 1 and 2 belong to the program, also while they are closed: what anybody prints
// goes to them.
#pragma once

namespace mccl {

/// Every owner of a descriptor passes a new one through this function. Returns the descriptor, or,
/// in place of one below 3, a copy that is 3 or above and that exec closes. Returns -1 and sets
/// errno where the process may have no more; a negative descriptor stays as it is, with errno.
int own_descriptor(int descriptor) noexcept;

}  // namespace mccl
