// JSON that people and other programs write.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace mccl {

/// Told every key of the outermost object as it is read; it may throw InvalidArgument.
using SeeKey = std::function<void(const std::string& key)>;

/// Throws InvalidArgument, "origin, line L, column C: expected ...; found ...", for text that is no
/// JSON, holds a number that no double holds or a key twice in one object, or is nested so deeply
/// that walking over it would overflow the stack. The text itself, which may hold secrets, is never
/// quoted.
nlohmann::json parse_json(std::string_view text, std::string_view origin, std::string_view expected,
                          const SeeKey& see_key = {});

}  // namespace mccl
