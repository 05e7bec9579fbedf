#include "cli/probe/secret.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"

namespace mccl::cli::probe {
namespace {

constexpr std::size_t kNonceDigits = 32;

}  // namespace

std::string Secret::prove(std::string_view purpose,
                          std::initializer_list<std::string_view> words) const {
  const std::string text = fmt::format("{}", fmt::join(words, "\n"));
  return rendezvous::hex_of(
      rendezvous::prove(key_, fmt::format("mccl probe {}", purpose), rendezvous::bytes_of(text)));
}

bool Secret::is_proof(std::string_view proof, std::string_view purpose,
                      std::initializer_list<std::string_view> words) const {
  const std::string expected = prove(purpose, words);
  return rendezvous::same_proof(rendezvous::bytes_of(proof), rendezvous::bytes_of(expected));
}

std::string make_nonce() { return rendezvous::make_job_key().substr(0, kNonceDigits); }

}  // namespace mccl::cli::probe
