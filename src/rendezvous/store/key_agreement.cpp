#include "rendezvous/store/key_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/value_text.h"
#include "mccl/error.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/memory_store.h"

namespace mccl::rendezvous {

namespace {

constexpr std::string_view kYes = "yes";
constexpr std::string_view kNo = "no";
/// First line of rank 0's verdict. kInTheFile: all ranks can read rank 0's file. Otherwise a rank
/// cannot read the file: with kPublished, all ranks use the key in the verdict instead; with
/// kRefused, all ranks throw. Once all ranks are connected, kTakenBack replaces the verdict, which
/// may hold the key.
constexpr std::string_view kPublished = "published";
constexpr std::string_view kRefused = "refused";
constexpr std::string_view kInTheFile = "in the file";
constexpr std::string_view kTakenBack = "taken back";
constexpr std::size_t kMostNamed = 8;

std::string offer_name() { return fmt::format("{}key file", kServersOwn); }
std::string verdict_name() { return fmt::format("{}key", kServersOwn); }
std::string answer_name(int rank) { return fmt::format("mccl/key/{}", rank); }

/// Returns the job's key, which is derived from the key in rank 0's file and from the identity of
/// this host. A rank on another host that shares the folder therefore gets a different key.
SecretBytes job_key_of(const SecretBytes& in_file) {
  std::string digits = hex_of(bytes_of(same_user_secret(in_file, 0)));
  return take_secret(digits);
}

/// Returns a digest of the key, by which a rank can check the key that it has read. The digest does
/// not reveal the key.
std::string digest_of(const SecretBytes& key) { return hex_of(prove(key, "MCCL key file", {})); }

std::string names_of(std::span<const int> ranks) {
  const auto named = ranks.first(std::min(ranks.size(), kMostNamed));
  std::string text = fmt::format("{}", fmt::join(named, ", "));
  if (ranks.size() > named.size()) text += fmt::format(" and {} more", ranks.size() - named.size());
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

[[noreturn]] void interfered(int rank, std::string_view how) {
  throw Error(
      fmt::format("rank {} does not start: {}. A process outside the job writes to the store; to "
                  "keep it out, {}",
                  rank, how, kHowToMakeAKey));
}

[[noreturn]] void refuse_without_key(const KeyAgreement& agreement, std::string_view unable) {
  throw InvalidArgument(fmt::format(
      "rank {} does not start: MCCL_JOB_KEY is not set, and {} cannot read rank 0's key "
      "file (on another host, as another user or in another container). Ranks on "
      "several hosts need a key: {}. MCCL_REQUIRE_KEY=0 starts without one; any process "
      "that reaches the store can then join",
      agreement.rank, printable(unable), kHowToMakeAKey));
}

[[noreturn]] void refuse_to_encrypt(int rank) {
  throw InvalidArgument(
      fmt::format("rank {} does not start: MCCL_ENCRYPTION is on and needs a key, but "
                  "MCCL_REQUIRE_KEY is 0 and MCCL_JOB_KEY is not set; {}",
                  rank, kHowToMakeAKey));
}

/// Waits until another rank, which `of` describes, has written the store's entry `name`, and
/// returns the entry. On a timeout, throws an error that is more specific than the store's.
std::string hear(const KeyAgreement& agreement, const std::string& name, std::string_view of) {
  try {
    return agreement.store.get(name, left_until(agreement.deadline));
  } catch (const TimeoutError& error) {
    throw TimeoutError(
        fmt::format("rank {} waited {} s (MCCL_CONNECT_TIMEOUT) for {} to agree on the job's key: "
                    "are all ranks running, and is MCCL_JOB_KEY set on some ranks only? ({})",
                    agreement.rank, agreement.config.connect_timeout, of, error.what()));
  }
}

void warn_of_published_key(const KeyAgreement& agreement, std::string_view who) {
  agreement.log.warn(
      "MCCL_JOB_KEY is not set, and {} cannot read rank 0's key file, which only processes of the "
      "same host, user and container can read. The job's key is therefore in the store, and any "
      "process that reaches the store's port can join the job. To start with a key, {}",
      printable(who), kHowToMakeAKey);
}

/// Rank 0 only: makes the key and publishes the verdict.
SecretBytes decide(const KeyAgreement& agreement) {
  const auto file = std::make_shared<const KeyFile>(agreement.folders);
  const bool publishes = keyless_of(agreement.config) == Keyless::anyone;
  if (!publishes) file->require(agreement.folders);
  SecretBytes key = job_key_of(file->key());
  agreement.store.set(offer_name(), digest_of(key) + "\n" + file->path());
  std::vector<int> unable;
  for (int rank = 1; rank < agreement.size; ++rank) {
    if (hear(agreement, answer_name(rank), fmt::format("rank {}", rank)) != kYes)
      unable.push_back(rank);
  }
  if (unable.empty()) {
    agreement.store.set(verdict_name(), kInTheFile);
    if (agreement.file != nullptr) *agreement.file = file;
    return key;
  }
  key = publishes ? make_job_key() : SecretBytes();
  agreement.store.set(verdict_name(),
                      fmt::format("{}\n{}\n{}\n{}", publishes ? kPublished : kRefused, key.view(),
                                  names_of(unable), fmt::join(unable, " ")));
  if (!publishes) refuse_without_key(agreement, names_of(unable));
  warn_of_published_key(agreement, names_of(unable));
  return key;
}

/// Returns the key in rank 0's file if this process can read it and the digest matches.
std::optional<SecretBytes> read_offer(std::string_view offer) {
  const std::string_view digest = next_part(offer, '\n');
  const std::optional<SecretBytes> in_file = read_key_file(std::string(offer));
  if (!in_file) return {};
  SecretBytes key = job_key_of(*in_file);
  if (digest_of(key) != digest) return {};
  return key;
}

/// Ranks other than 0: reads rank 0's file and follows rank 0's verdict.
SecretBytes take(const KeyAgreement& agreement) {
  const std::optional<SecretBytes> own = read_offer(hear(agreement, offer_name(), "rank 0"));
  agreement.store.set(answer_name(agreement.rank), own ? kYes : kNo);
  const std::string verdict = hear(agreement, verdict_name(), "the other ranks");
  std::string_view rest = verdict;
  const std::string_view kind = next_part(rest, '\n');
  if (kind != kPublished && kind != kRefused) {
    if (!own)
      interfered(
          agreement.rank,
          "the store claims that this rank read rank 0's key file, but this rank did not read it");
    return *own;
  }
  SecretBytes key(next_part(rest, '\n'));
  const std::string who(next_part(rest, '\n'));
  while (own && !rest.empty()) {
    if (next_part(rest, ' ') == std::to_string(agreement.rank))
      interfered(agreement.rank,
                 "the store claims that this rank cannot read rank 0's key file, but this rank can "
                 "read it");
  }
  if (kind == kRefused || keyless_of(agreement.config) == Keyless::same_user)
    refuse_without_key(agreement, who);
  warn_of_published_key(agreement, who);
  return key;
}

}  // namespace

Keyless keyless_of(const Config& config) {
  return config.require_key == "0" ? Keyless::anyone : Keyless::same_user;
}

Party party_of(const Config& config) {
  return {.job_key = config.job_key,
          .keyless = keyless_of(config),
          .encryption = transport::tcp::Encryption::of(config)};
}

void check_required_key(const Config& config, int rank, int size) {
  if (size == 1 || !config.job_key.empty()) return;
  if (config.require_key == "0" && config.encryption == "on") refuse_to_encrypt(rank);
  if (config.require_key != "1") return;
  throw InvalidArgument(
      fmt::format("rank {} does not start: MCCL_REQUIRE_KEY is 1 and MCCL_JOB_KEY is not set; {}",
                  rank, kHowToMakeAKey));
}

void check_key_for_encryption(const Party& self) {
  if (!self.encryption || !self.job_key.empty() || self.keyless == Keyless::same_user) return;
  refuse_to_encrypt(self.rank);
}

std::string advice_without_key(const Config& config) {
  if (!config.job_key.empty() || keyless_of(config) == Keyless::anyone) return {};
  return fmt::format(
      " MCCL_JOB_KEY is not set, so a rank on another host, of another user or in another "
      "container cannot join; if the job has such ranks, {}",
      kHowToMakeAKey);
}

SecretBytes agree_on_key(const KeyAgreement& agreement) {
  check_required_key(agreement.config, agreement.rank, agreement.size);
  if (!agreement.config.job_key.empty()) return agreement.config.job_key;
  return agreement.rank == 0 ? decide(agreement) : take(agreement);
}

std::optional<SecretBytes> agreed_key(const Config& config, Store& store) {
  if (!config.job_key.empty()) return config.job_key;
  const std::optional<std::string> offer = find_now(store, offer_name());
  return offer ? read_offer(*offer) : std::nullopt;
}

SecretBytes secret_of_run(const SecretBytes& job_key, const std::string& name) {
  return secret_of(prove(job_key, "mccl incarnation", bytes_of(name)));
}

void take_back_key(const Config& config, int rank, Store& store) {
  if (rank == 0 && config.job_key.empty()) store.set(verdict_name(), kTakenBack);
}

}  // namespace mccl::rendezvous
