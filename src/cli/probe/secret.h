// Proofs that the other side knows the key of this run. The key itself is never sent over these
// connections.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace mccl::cli::probe {

class Secret {
 public:
  explicit Secret(std::string key) : key_(std::move(key)) {}

  /// Returns the HMAC-SHA256 of the words, as 64 hexadecimal digits. A proof for one purpose is
  /// invalid for another. No word may contain a line end.
  std::string prove(std::string_view purpose, std::initializer_list<std::string_view> words) const;
  bool is_proof(std::string_view proof, std::string_view purpose,
                std::initializer_list<std::string_view> words) const;

 private:
  std::string key_;
};

/// Returns 32 unpredictable hexadecimal digits. A proof that covers a new nonce of the verifier
/// cannot be a replay.
std::string make_nonce();

}  // namespace mccl::cli::probe
