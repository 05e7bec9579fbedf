#include "rendezvous/connections/proof.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/environment.h"
#include "mccl/error.h"
#include "rendezvous/connections/names.h"
#include "rendezvous/connections/wire.h"

namespace mccl::rendezvous {
namespace {

Proof mac(std::string_view key, std::span<const std::byte> message) {
  Proof proof;
  unsigned int length = 0;
  // OpenSSL treats a null key differently from an empty one, so the pointer must not be null.
  const char* secret = key.empty() ? "" : key.data();
  if (HMAC(EVP_sha256(), secret, static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &length) == nullptr ||
      length != proof.size()) {
    throw Error("OpenSSL cannot compute HMAC-SHA256; check the OpenSSL configuration");
  }
  return proof;
}

constexpr std::string_view kFileName = "mccl-key-";
constexpr std::size_t kLongestPath = 4096;
constexpr mode_t kPrivate = S_IRUSR | S_IWUSR;
/// Maximum number of key files, left over by killed processes, that one process removes.
constexpr int kMostRemoved = 16;
// If the path is a pipe or a terminal, open must neither block nor have side effects.
constexpr int kReadOnly = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

/// True if the file belongs to this user, has a single hard link and the size of a key, and no
/// other user may open it.
bool is_key_file(const Descriptor& file) {
  struct stat facts = {};
  if (::fstat(file.get(), &facts) != 0) return false;
  return S_ISREG(facts.st_mode) && (facts.st_mode & 07777) == kPrivate &&
         facts.st_uid == ::geteuid() && facts.st_nlink == 1 &&
         facts.st_size == static_cast<off_t>(kJobKeyLetters);
}

bool is_random_part(std::string_view name) {
  return name.size() == kKeyFileLetters && name.find_first_not_of("0123456789abcdef") == name.npos;
}

bool is_named_like_one(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return path.starts_with('/') && path.size() <= kLongestPath &&
         path.substr(slash + 1).starts_with(kFileName) && path.find('\0') == path.npos;
}

std::string path_in(const std::string& folder, std::string_view name) {
  return fmt::format("{}/{}{}", folder, kFileName, name);
}

/// Removes the file if it is a key file of this user and no live process holds its lock. Returns
/// true if it has been removed.
bool remove_if_left_over(const std::string& path) {
  const Descriptor file(::open(path.c_str(), kReadOnly));
  if (!file || !is_key_file(file)) return false;
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 && ::unlink(path.c_str()) == 0;
}

void remove_left_over_files(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), &::closedir);
  if (!entries) return;
  int removed = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(kFileName) || !is_random_part(name.substr(kFileName.size()))) continue;
    if (remove_if_left_over(folder + "/" + entry->d_name) && ++removed == kMostRemoved) return;
  }
}

}  // namespace

Nonce make_nonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) !=
      1) {
    throw Error("OpenSSL supplies no random bytes; check that the system's random source works");
  }
  return nonce;
}

SecretBytes make_job_key() {
  Nonce nonce = make_nonce();
  std::string digits = hex_of(nonce);
  erase(nonce);
  return take_secret(digits);
}

std::string make_random_name(std::size_t letters) {
  return hex_of(make_nonce()).substr(0, letters);
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string digits;
  digits.reserve(2 * bytes.size());  // Growth would leave parts of a secret in freed memory.
  for (const std::byte byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return digits;
}

Proof prove(std::string_view key, std::string_view label, std::span<const std::byte> data) {
  Bytes message;
  message.reserve(label.size() + 1 + data.size());
  append(message, bytes_of(label));
  message.push_back(std::byte{0});
  append(message, data);
  return mac(key, message);
}

Proof derive(std::string_view key, std::span<const std::byte> salt, std::string_view label) {
  // HKDF with a single block of output: extract, then expand.
  std::array<std::byte, kProofBytes> hashed;
  unsigned int length = 0;
  if (EVP_Digest(salt.data(), salt.size(), reinterpret_cast<unsigned char*>(hashed.data()), &length,
                 EVP_sha256(), nullptr) != 1) {
    throw Error("OpenSSL cannot compute SHA-256; check the OpenSSL configuration");
  }
  Proof extracted = mac(text_of(hashed), bytes_of(key));
  Bytes info(bytes_of(label).begin(), bytes_of(label).end());
  info.push_back(std::byte{1});
  const Proof derived = mac(text_of(extracted), info);
  erase(extracted);
  return derived;
}

SecretBytes secret_of(Proof proof) {
  SecretBytes secret(text_of(proof));
  erase(proof);
  return secret;
}

bool same_proof(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::vector<std::string> private_folders() { return private_folders(process_environment()); }

/// The folder that all processes of the machine use comes first. Folders from the environment
/// follow, because two processes of a user may have different environments.
std::vector<std::string> private_folders(const std::map<std::string, std::string>& environment) {
  std::vector<std::string> folders = {"/dev/shm"};
  for (const char* variable : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const auto found = environment.find(variable);
    if (found != environment.end() && found->second.starts_with('/'))
      folders.push_back(found->second);
  }
  if (std::ranges::find(folders, "/tmp") == folders.end()) folders.emplace_back("/tmp");
  return folders;
}

KeyFile::KeyFile(std::span<const std::string> folders)
    : key_(make_job_key()), process_(static_cast<int>(::getpid())) {
  for (const std::string& folder : folders) {
    // The name cannot be guessed, so no other process can create the file first.
    const std::string path = path_in(folder, make_random_name(kKeyFileLetters));
    if (!write(path)) continue;
    path_ = path;
    remove_left_over_files(folder);
    return;
  }
}

bool KeyFile::write(const std::string& path) {
  Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kPrivate));
  if (!file) return false;
  // The umask may have removed the owner's permissions, so they are set here. The file is locked
  // before the key is written, because a process that removes left-over key files ignores an empty
  // file.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0 && ::fchmod(file.get(), kPrivate) == 0 &&
      write_all(file, key_)) {
    file_ = std::move(file);
    return true;
  }
  ::unlink(path.c_str());
  return false;
}

KeyFile::~KeyFile() {
  if (!path_.empty() && process_ == static_cast<int>(::getpid())) ::unlink(path_.c_str());
}

void KeyFile::require(std::span<const std::string> folders) const {
  if (!path_.empty()) return;
  throw Error(
      fmt::format("rank 0 cannot write a key file, by which ranks without a key prove that they "
                  "run as the same user on this host, to any of {}; make one of them writable, or "
                  "give the job a key: {}",
                  fmt::join(folders, ", "), kHowToMakeAKey));
}

std::string_view KeyFile::name() const {
  const std::string_view path = path_;
  return path.substr(path.size() - std::min(path.size(), kKeyFileLetters));
}

std::optional<SecretBytes> read_key_file(const std::string& path) {
  if (!is_named_like_one(path)) return {};
  const Descriptor file(::open(path.c_str(), kReadOnly));
  if (!file || !is_key_file(file)) return {};
  std::array<char, kJobKeyLetters> key = {};
  const ssize_t got = ::read(file.get(), key.data(), key.size());
  SecretBytes secret = take_secret(key);
  if (got != static_cast<ssize_t>(key.size())) return {};
  return secret;
}

std::optional<SecretBytes> find_key_file(std::span<const std::string> folders,
                                         std::string_view name) {
  if (!is_random_part(name)) return {};
  for (const std::string& folder : folders) {
    if (auto key = read_key_file(path_in(folder, name))) return key;
  }
  return {};
}

SecretBytes same_user_secret(std::string_view key, std::uint16_t port) {
  Bytes scope;
  append(scope, port);
  append(scope, bytes_of(transport::tcp::host_identity()));
  return secret_of(prove(key, "mccl same user", scope));
}

}  // namespace mccl::rendezvous
