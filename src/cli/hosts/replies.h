// The lines that a host sends while it is queried. All of them are untrusted.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/hosts/inquiry.h"
#include "rendezvous/connections/proof.h"

namespace mccl::cli::hosts {

/// The contents of one host's lines. Control characters in texts for display are escaped.
struct Replies {
  enum class News {
    none,
    probe,  ///< The host's probe runs, and can be sent requests.
    facts,  ///< The host has reported all its facts, which are in Asked::facts.
  };
  /// Stores a line of host `host`, which belongs to `asked`[`host`]. Ignores invalid lines.
  News take(std::string_view line, std::vector<Asked>& asked, std::size_t host);

  /// Begins the line that reports whether the host has mccl.
  std::string token = "mccl-" + rendezvous::make_random_name(16);
  bool is_missing = false;      ///< True if the host has no mccl.
  std::string program;          ///< Path of the host's mccl; empty until it is found.
  std::string busy;             ///< The last program that the probe started to gather facts.
  bool told = false;            ///< True once the host has reported all its facts.
  bool other_build = false;     ///< True if the host's probe uses another protocol.
  std::size_t heard_bytes = 0;  ///< Number of bytes received before the facts were complete.
  /// Time of the request, in seconds since 1970, by this machine's clock.
  double asked_at = 0;
  std::optional<double> clock_off_s;
  std::string odd;  ///< Beginning of the first answer that could not be parsed.
  std::vector<nlohmann::json> answers;
  cluster::CallResults calls;  ///< All discovery messages that the host has received.

 private:
  News take_place(std::string_view line);
  News take_answer(const nlohmann::json& answer, std::vector<Asked>& asked, std::size_t host);
};

}  // namespace mccl::cli::hosts
