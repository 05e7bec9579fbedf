// The protocol of `mccl probe`: its version, the requests on its standard input, its ports, and the
// proofs between probes that the other side knows the key of this run. The key itself is never sent
// over these connections.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"
#include "transport/tcp/address.h"

namespace mccl::cli::probe {

/// Version of the requests and answers. Incremented whenever one of them changes its meaning.
inline constexpr int kProtocol = 2;

/// The probe listens at a port of each range, so that firewalls that admit a job also admit it.
/// MCCL's ranks use ports from 29600 on, and `mccl launch` uses ports from 32321 on. These are the
/// ends of those ranges, so that the probe takes no port that a job needs.
inline constexpr std::array<std::pair<std::uint16_t, std::uint16_t>, 2> kPortRanges = {
    {{29680, 29700}, {32380, 32400}}};

/// The time in seconds since 1970.
inline double now_in_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Secret {
 public:
  explicit Secret(std::string key) : key_(std::move(key)) {}

  /// The HMAC-SHA256 of the purpose and the words with the key of this run, as 64 hexadecimal
  /// digits. No word may contain a line end.
  std::string prove(std::string_view purpose, std::initializer_list<std::string_view> words) const {
    const std::string text = fmt::format("{}", fmt::join(words, "\n"));
    return rendezvous::hex_of(
        rendezvous::prove(key_, fmt::format("mccl probe {}", purpose), rendezvous::bytes_of(text)));
  }
  bool is_proof(std::string_view proof, std::string_view purpose,
                std::initializer_list<std::string_view> words) const {
    const std::string expected = prove(purpose, words);
    return rendezvous::same_proof(rendezvous::bytes_of(proof), rendezvous::bytes_of(expected));
  }

 private:
  std::string key_;
};

/// 32 unpredictable hexadecimal digits, which keep a proof that covers them from being a replay.
inline std::string make_nonce() { return rendezvous::make_random_name(32); }

using transport::tcp::Address;

/// Parameters of a request to connect to another probe: "id", "to", "port", and optionally "from".
struct Target {
  const Address* from() const { return source ? &*source : nullptr; }

  double id = 0;
  Address to;
  std::optional<Address> source;
};

/// A valid request. Only the members that its kind needs are used.
struct ProbeRequest {
  std::string kind;  ///< "tell", "listen", "call", "dial", "packet" or "time".
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
