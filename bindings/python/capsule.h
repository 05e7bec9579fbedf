// Makes capsules, through which extension modules pass C++ objects to each other.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <utility>

namespace mccl::python {

/// Name of the capsules that own a `std::shared_ptr<mccl::Group>`.
inline constexpr const char* kGroupCapsule = "mccl.group";

/// Returns a capsule that owns `value`, and that holds a pointer to it. `name` may be null.
template <typename Value>
nanobind::capsule capsule_of(Value value, const char* name = nullptr) {
  auto held = std::make_unique<Value>(std::move(value));
  nanobind::capsule capsule(held.get(), name,
                            [](void* pointer) noexcept { delete static_cast<Value*>(pointer); });
  held.release();
  return capsule;
}

}  // namespace mccl::python
