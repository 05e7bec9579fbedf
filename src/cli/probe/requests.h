// The requests that `mccl probe` reads from its standard input.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "transport/tcp/address.h"

namespace mccl::cli::probe {

using transport::tcp::Address;

/// Parameters of a request to connect to another probe: "id", "to", "port", and optionally "from".
struct Target {
  const Address* from() const { return source ? &*source : nullptr; }

  double id = 0;
  Address to;
  std::optional<Address> source;
};

/// A valid request. Only the members that its kind names are used.
struct ProbeRequest {
  enum class Kind {
    tell,    ///< python, patience
    listen,  ///< key
    call,    ///< name
    dial,    ///< target
    packet,  ///< target, bytes
    time,    ///< target, seconds
  };
  Kind kind = Kind::tell;
  std::string python;
  std::chrono::seconds patience{0};
  std::string key;
  double name = 0;
  std::optional<Target> target;
  int bytes = 0;
  double seconds = 0;
};

/// Throws InvalidArgument for an invalid or unknown request.
ProbeRequest parse_request(const nlohmann::json& json);

}  // namespace mccl::cli::probe
