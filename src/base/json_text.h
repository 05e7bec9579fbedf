// Reads JSON that people and other programs write.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

namespace mccl {

/// A function that the parser calls with every key of the outermost object, in the order of the
/// text. May throw InvalidArgument.
using SeeKey = std::function<void(const std::string& key)>;

/// Parses JSON text. Throws InvalidArgument, "origin, line L, column C: expected ...; found ...",
/// if the text is not JSON, holds a number that no double can hold, holds a key twice in one
/// object, or is nested more than 64 deep, so that no recursive walk can overflow the stack. The
/// message quotes no value, because values may be secrets.
nlohmann::json parse_json(std::string_view text, std::string_view origin, std::string_view expected,
                          const SeeKey& see_key = {});

}  // namespace mccl
