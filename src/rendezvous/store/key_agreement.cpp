#include "rendezvous/store/key_agreement.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/environment.h"
#include "base/value_text.h"
#include "mccl/error.h"
#include "rendezvous/connections/proof.h"
#include "rendezvous/connections/wire.h"
#include "rendezvous/store/memory_store.h"

namespace mccl::rendezvous {

namespace {

constexpr std::string_view kYes = "yes";
constexpr std::string_view kNo = "no";
/// First word of a verdict that publishes a key.
constexpr std::string_view kPublished = "published";
constexpr std::string_view kInTheFile = "in the file";
constexpr std::string_view kTakenBack = "taken back";
constexpr std::size_t kMostNamed = 8;

constexpr std::string_view kFileName = "mccl-key-";
constexpr std::size_t kLongestPath = 4096;
constexpr mode_t kPrivate = S_IRUSR | S_IWUSR;

bool write_all(const Descriptor& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

/// True if the file belongs to this user, has a single hard link and the size of a key, and no
/// other user may open it.
bool is_key_file(const Descriptor& file) {
  struct stat facts = {};
  if (::fstat(file.get(), &facts) != 0) return false;
  return S_ISREG(facts.st_mode) && (facts.st_mode & 07777) == kPrivate &&
         facts.st_uid == ::geteuid() && facts.st_nlink == 1 &&
         facts.st_size == static_cast<off_t>(kJobKeyLetters);
}

bool is_named_like_one(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return path.starts_with('/') && path.size() <= kLongestPath &&
         path.substr(slash + 1).starts_with(kFileName) && path.find('\0') == path.npos;
}

std::string offer_name() { return fmt::format("{}key file", kServersOwn); }
std::string verdict_name() { return fmt::format("{}key", kServersOwn); }
std::string answer_name(int rank) { return fmt::format("mccl/key/{}", rank); }

/// Returns a digest that identifies the right key and reveals nothing else about it.
std::string digest_of(const std::string& key) { return hex_of(prove(key, "MCCL key file", {})); }

std::string names_of(std::span<const int> ranks) {
  const auto named = ranks.first(std::min(ranks.size(), kMostNamed));
  std::string text = fmt::format("{}", fmt::join(named, ", "));
  if (ranks.size() > named.size()) text += fmt::format(" and {} more", ranks.size() - named.size());
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

[[noreturn]] void interfered(int rank, std::string_view how) {
  throw Error(
      fmt::format("rank {} does not start: {}. A process outside the job writes to the store: give "
                  "every rank the same MCCL_JOB_KEY, such as the output of `openssl rand -hex 32`",
                  rank, how));
}

/// Reads an entry that another rank writes. On a timeout, its error is more specific than the
/// store's.
std::string hear(const KeyAgreement& agreement, const std::string& name, std::string_view of) {
  try {
    return agreement.store.get(name, left_until(agreement.deadline));
  } catch (const TimeoutError& error) {
    throw TimeoutError(
        fmt::format("rank {} waited {} s (MCCL_CONNECT_TIMEOUT) for {} to agree on the job's key: "
                    "is it running, and also without MCCL_JOB_KEY? ({})",
                    agreement.rank, agreement.config.connect_timeout, of, error.what()));
  }
}

void warn_of_published_key(const KeyAgreement& agreement, std::string_view who) {
  agreement.log.warn(
      "no MCCL_JOB_KEY is set, and {} cannot read rank 0's key file (on another host, as another "
      "user or in another container): the job's key is in the store, and any process that reaches "
      "its port can join the job. Give every rank the same MCCL_JOB_KEY, such as the output of "
      "`openssl rand -hex 32`; MCCL_REQUIRE_KEY=1 refuses to start without one",
      printable(who));
}

/// Rank 0's part: makes the key and publishes the verdict.
std::string decide(const KeyAgreement& agreement) {
  std::string key = make_job_key();
  const KeyFile file(agreement.folders, key);
  agreement.store.set(offer_name(), digest_of(key) + "\n" + file.path());
  std::vector<int> unable;
  for (int rank = 1; rank < agreement.size; ++rank) {
    if (hear(agreement, answer_name(rank), fmt::format("rank {}", rank)) != kYes)
      unable.push_back(rank);
  }
  if (unable.empty()) {
    agreement.store.set(verdict_name(), kInTheFile);
    return key;
  }
  key = make_job_key();
  agreement.store.set(verdict_name(), fmt::format("{}\n{}\n{}\n{}", kPublished, key,
                                                  names_of(unable), fmt::join(unable, " ")));
  warn_of_published_key(agreement, names_of(unable));
  return key;
}

/// Returns the key in rank 0's file if this process can read it and the digest matches.
std::optional<std::string> read_offer(std::string_view offer) {
  const std::string_view digest = next_part(offer, '\n');
  std::optional<std::string> key = read_key_file(std::string(offer));
  if (key && digest_of(*key) != digest) key.reset();
  return key;
}

/// The part of the other ranks: reads the file and follows the verdict.
std::string take(const KeyAgreement& agreement) {
  const std::optional<std::string> own = read_offer(hear(agreement, offer_name(), "rank 0"));
  agreement.store.set(answer_name(agreement.rank), own ? kYes : kNo);
  const std::string verdict = hear(agreement, verdict_name(), "the other ranks");
  std::string_view rest = verdict;
  if (next_part(rest, '\n') != kPublished) {
    if (!own)
      interfered(agreement.rank,
                 "the store claims that it read rank 0's key file, but it could not");
    return *own;
  }
  std::string key(next_part(rest, '\n'));
  const std::string who(next_part(rest, '\n'));
  while (own && !rest.empty()) {
    if (next_part(rest, ' ') == std::to_string(agreement.rank))
      interfered(agreement.rank,
                 "the store claims that it cannot read rank 0's key file, but it can");
  }
  warn_of_published_key(agreement, who);
  return key;
}

}  // namespace

KeyFile::KeyFile(std::span<const std::string> folders, const std::string& key) {
  for (const std::string& folder : folders) {
    // The name cannot be guessed, so no other process can create the file first.
    const std::string path = folder + "/" + std::string(kFileName) + make_job_key().substr(0, 32);
    const Descriptor file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kPrivate));
    if (!file) continue;
    // The umask may have removed the owner's permissions.
    if (::fchmod(file.get(), kPrivate) == 0 && write_all(file, key)) {
      path_ = path;
      return;
    }
    ::unlink(path.c_str());
  }
}

KeyFile::~KeyFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

std::optional<std::string> read_key_file(const std::string& path) {
  if (!is_named_like_one(path)) return {};
  // If the path is a pipe or a terminal, open must neither block nor have side effects.
  const Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file || !is_key_file(file)) return {};
  std::string key(kJobKeyLetters, '\0');
  const ssize_t got = ::read(file.get(), key.data(), key.size());
  if (got != static_cast<ssize_t>(key.size())) return {};
  return key;
}

void check_required_key(const Config& config, int rank, int size) {
  if (!config.require_key || size == 1 || !config.job_key.empty()) return;
  throw InvalidArgument(
      fmt::format("rank {} does not start: MCCL_REQUIRE_KEY is set and MCCL_JOB_KEY is not; give "
                  "every rank the same MCCL_JOB_KEY, such as the output of `openssl rand -hex 32`",
                  rank));
}

std::string agree_on_key(const KeyAgreement& agreement) {
  check_required_key(agreement.config, agreement.rank, agreement.size);
  if (!agreement.config.job_key.empty()) return agreement.config.job_key;
  return agreement.rank == 0 ? decide(agreement) : take(agreement);
}

void take_back_key(const Config& config, int rank, Store& store) {
  if (rank == 0 && config.job_key.empty()) store.set(verdict_name(), kTakenBack);
}

std::vector<std::string> private_folders() { return private_folders(process_environment()); }

std::vector<std::string> private_folders(const std::map<std::string, std::string>& environment) {
  const auto folder = [&](const char* variable, const char* otherwise) {
    const auto found = environment.find(variable);
    const bool usable = found != environment.end() && found->second.starts_with('/');
    return std::string(usable ? found->second : otherwise);
  };
  std::vector<std::string> folders = {folder("XDG_RUNTIME_DIR", ""), "/dev/shm",
                                      folder("TMPDIR", "/tmp")};
  std::erase(folders, "");
  return folders;
}

}  // namespace mccl::rendezvous
