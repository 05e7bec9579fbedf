// The protocol between probes: versions, ports, and proofs that the other side knows the key of
// this run. The key itself is never sent over these connections.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"

namespace mccl::cli::probe {

/// Version of the requests and answers. Incremented whenever one of them changes its meaning.
inline constexpr int kProtocol = 2;

/// The probe listens at a port of each range, so that firewalls that admit a job also admit the
/// probe. MCCL's ranks use ports from 29600 on, and `mccl launch` uses ports from 32321 on. The
/// probe's ranges are at the end of the ranges of a job, so that the probe takes no port that a job
/// needs.
inline constexpr std::array<std::pair<std::uint16_t, std::uint16_t>, 2> kPortRanges = {
    {{29680, 29700}, {32380, 32400}}};

class Secret {
 public:
  explicit Secret(std::string key) : key_(std::move(key)) {}

  /// Returns a proof: the HMAC-SHA256 of the purpose and the words with the key of this run, as 64
  /// hexadecimal digits. A proof for one purpose is invalid for another purpose. No word may
  /// contain a line end.
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

/// Returns 32 unpredictable hexadecimal digits. A proof that covers a new nonce of the verifier
/// cannot be a replay.
inline std::string make_nonce() { return rendezvous::make_random_name(32); }

}  // namespace mccl::cli::probe
