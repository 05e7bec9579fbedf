// Secrets: nonces, keys of jobs, and proofs that a process knows a key. Processes without a job key
// prove by a key file that they run as the same user on the same host, because only such processes
// can read the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/secret.h"

namespace mccl::rendezvous {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kJobKeyLetters = 2 * kNonceBytes;

using Nonce = std::array<std::byte, kNonceBytes>;
using Proof = std::array<std::byte, kProofBytes>;

/// Returns unpredictable bytes. Throws Error if the system has no randomness.
Nonce make_nonce();
/// Returns a new, random job key: the hexadecimal digits of a nonce.
SecretBytes make_job_key();
/// Returns at most kJobKeyLetters random hexadecimal digits, for a name that cannot be guessed.
std::string make_random_name(std::size_t letters);
std::string hex_of(std::span<const std::byte> bytes);

/// Returns HMAC-SHA256 under `key` over `label`, a zero byte, and `data`. The label states the
/// prover's role and the message, so that no proof can be used in place of another.
Proof prove(std::string_view key, std::string_view label, std::span<const std::byte> data);

/// Returns a key for one purpose, by HKDF with SHA-256 (RFC 5869). The salt of HKDF is the hash of
/// `salt`; its info is `label`, which states the purpose.
Proof derive(std::string_view key, std::span<const std::byte> salt, std::string_view label);

/// Moves a proof that serves as a secret to a SecretBytes.
SecretBytes secret_of(Proof proof);

/// Compares two proofs in constant time.
bool same_proof(std::span<const std::byte> a, std::span<const std::byte> b);

/// Advice on how to make a job key, for errors about a missing key.
inline constexpr std::string_view kHowToMakeAKey =
    "run `export MCCL_JOB_KEY=$(openssl rand -hex 32)` once, and start every rank with that value";

/// Number of letters in the random part of a key file's name.
inline constexpr std::size_t kKeyFileLetters = 32;

/// Folders for a small file that only processes of this machine should see, best first: folders in
/// memory, then the folders for temporary files.
std::vector<std::string> private_folders();
std::vector<std::string> private_folders(const std::map<std::string, std::string>& environment);

/// A file that holds a key and that no other user may open. If a process is killed, its file
/// remains until the same user makes the next KeyFile in that folder, which removes it.
class KeyFile {
 public:
  /// Writes a new key to a file in the first of `folders` in which this process can create one.
  /// path() is empty if there is no such folder.
  explicit KeyFile(std::span<const std::string> folders);
  /// Removes the file; no-op in the child of a fork.
  ~KeyFile();
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;

  /// Throws Error if no file was written. `folders` are those given to the constructor.
  void require(std::span<const std::string> folders) const;
  const std::string& path() const { return path_; }
  const SecretBytes& key() const { return key_; }
  /// Random part of the file's name; kKeyFileLetters hexadecimal digits.
  std::string_view name() const;

 private:
  bool write(const std::string& path);

  SecretBytes key_;
  std::string path_;
  Descriptor file_;  ///< The lock on this file shows that the process is alive.
  int process_;      ///< Id of the process that made the file and removes it.
};

/// Returns the key in a file that a KeyFile of this user wrote; empty for any other file. The path
/// may come from an untrusted process.
std::optional<SecretBytes> read_key_file(const std::string& path);

/// Returns the key in the first key file in `folders` whose name has the random part `name`.
/// Returns empty if this process can read no such file, or if `name` is malformed. The name may
/// come from an untrusted process.
std::optional<SecretBytes> find_key_file(std::span<const std::string> folders,
                                         std::string_view name);

/// Returns the secret by which two processes on this host prove that both can read a key file. It
/// differs between hosts, even if they share the folder, and between ports, so that a connection
/// cannot be passed on to another listener of the same user.
SecretBytes same_user_secret(std::string_view key, std::uint16_t port);

}  // namespace mccl::rendezvous
