// Reads JSON that people and other programs write.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace mccl {

/// Called with every key of the outermost object as it is read. May throw InvalidArgument.
using SeeKey = std::function<void(const std::string& key)>;

/// Throws InvalidArgument, "origin, line L, column C: expected ...; found ...", in these cases: the
/// text is not JSON, holds a number that no double can hold, holds a key twice in one object, or is
/// nested so deeply that a recursive walk could overflow the stack. The message never quotes the
/// text, which may contain secrets.
nlohmann::json parse_json(std::string_view text, std::string_view origin, std::string_view expected,
                          const SeeKey& see_key = {});

}  // namespace mccl
