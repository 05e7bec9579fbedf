#include "transport/tcp/record_keys.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/secret.h"
#include "mccl/error.h"
#include "transport/tcp/encryption.h"
#include "transport/tcp/kernel_tls.h"

namespace mccl::transport::tcp {
namespace {

/// The version in the header of every encrypted record (RFC 8446, section 5.2).
constexpr std::byte kVersion[2] = {std::byte{3}, std::byte{3}};

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

std::string_view text_of(const TrafficSecret& secret) {
  return {reinterpret_cast<const char*>(secret.data()), secret.size()};
}

/// Leaves the key of a context out of core dumps. OpenSSL decides where the key lies, but reveals
/// the address of the nonce, once there is one, which is part of the same structure as the key.
void leave_context_out_of_dumps(evp_cipher_ctx_st* context) {
  constexpr std::size_t kStructureBytes = 2048;  // OpenSSL 3.0 to 3.5 use less than 1 KiB.
  constexpr std::array<unsigned char, 12> kAnyNonce{};
  (void)EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, kAnyNonce.data(), -1);
  void* nonce = nullptr;
  OSSL_PARAM wanted[] = {
      OSSL_PARAM_construct_octet_ptr(OSSL_CIPHER_PARAM_IV, &nonce, kAnyNonce.size()),
      OSSL_PARAM_construct_end()};
  if (EVP_CIPHER_CTX_get_params(context, wanted) != 1 || nonce == nullptr) return;
  leave_out_of_dumps(static_cast<const std::byte*>(nonce) - kStructureBytes, 2 * kStructureBytes);
}

/// Writes the header, which is also the additional authenticated data of the record.
void write_header(std::byte* to, std::size_t ciphertext_bytes) {
  to[0] = static_cast<std::byte>(ContentType::application_data);
  to[1] = kVersion[0];
  to[2] = kVersion[1];
  to[3] = static_cast<std::byte>(ciphertext_bytes >> 8);
  to[4] = static_cast<std::byte>(ciphertext_bytes);
}

}  // namespace

std::optional<std::size_t> record_size(std::span<const std::byte> bytes) {
  if (bytes.size() < kRecordHeaderBytes) return 0;
  const std::size_t ciphertext =
      std::to_integer<std::size_t>(bytes[3]) << 8 | std::to_integer<std::size_t>(bytes[4]);
  if (bytes[0] != static_cast<std::byte>(ContentType::application_data) ||
      bytes[1] != kVersion[0] || bytes[2] != kVersion[1] || ciphertext < 1 + kTagBytes ||
      ciphertext > kMostCiphertextBytes) {
    return std::nullopt;
  }
  return kRecordHeaderBytes + ciphertext;
}

void RecordKeys::FreeContext::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

RecordKeys::RecordKeys(Use use, const TrafficSecret& secret) : use_(use), secret_(text_of(secret)) {
  if (!derive_mask()) {
    throw Error("OpenSSL cannot derive the keys of an encrypted connection: " +
                take_openssl_error());
  }
  add_lanes(1);
}

RecordKeys::~RecordKeys() = default;

/// HKDF-Expand-Label with an empty context (RFC 8446, section 7.1). At most 32 bytes are derived,
/// so one block of HKDF-Expand suffices (RFC 5869, section 2.3).
bool RecordKeys::derive(std::string_view label, std::span<std::byte> to) const noexcept {
  constexpr std::string_view kPrefix = "tls13 ";
  std::array<unsigned char, 32> info{};
  std::size_t end = 1;  // The first byte is the upper half of the length.
  info[end++] = static_cast<unsigned char>(to.size());
  info[end++] = static_cast<unsigned char>(kPrefix.size() + label.size());
  for (const std::string_view part : {kPrefix, label}) {
    std::memcpy(&info[end], part.data(), part.size());
    end += part.size();
  }
  ++end;            // The length of the context is 0.
  info[end++] = 1;  // The number of the block.
  TrafficSecret block{};
  const std::string_view secret = secret_.view();
  const bool is_derived = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                               info.data(), end, raw(block.data()), nullptr) != nullptr;
  std::memcpy(to.data(), block.data(), to.size());
  OPENSSL_cleanse(block.data(), block.size());
  return is_derived;
}

bool RecordKeys::derive_mask() noexcept { return derive("iv", mask_); }

template <typename Call>
bool RecordKeys::with_key(const Call& call) const noexcept {
  RecordKey key{};
  const bool is_used = derive("key", key) && call(key);
  OPENSSL_cleanse(key.data(), key.size());
  return is_used;
}

bool RecordKeys::set_key(evp_cipher_ctx_st* context, const evp_cipher_st* cipher) const noexcept {
  return with_key([&](const RecordKey& key) {
    return EVP_CipherInit_ex(context, cipher, nullptr, raw(key.data()), nullptr,
                             use_ == Use::seal ? 1 : 0) == 1;
  });
}

int RecordKeys::give_to_kernel(int descriptor, std::uint64_t number) const noexcept {
  int error = EPROTO;
  (void)with_key([&](const RecordKey& key) {
    error = give_key_to_kernel(descriptor, use_, key, mask_, number);
    return error == 0;
  });
  return error;
}

void RecordKeys::add_lanes(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Context context(EVP_CIPHER_CTX_new());
    if (context == nullptr || !set_key(context.get(), EVP_aes_128_gcm())) {
      throw Error("OpenSSL cannot prepare the cipher of an encrypted connection: " +
                  take_openssl_error());
    }
    leave_context_out_of_dumps(context.get());
    lanes_.push_back(std::move(context));
  }
}

bool RecordKeys::replace() noexcept {
  TrafficSecret next{};
  if (!derive("traffic upd", next)) return false;
  try {
    secret_ = SecretBytes(text_of(next));
  } catch (const std::bad_alloc&) {
    OPENSSL_cleanse(next.data(), next.size());
    return false;
  }
  OPENSSL_cleanse(next.data(), next.size());
  return derive_mask() && std::ranges::all_of(lanes_, [this](const Context& context) {
           return set_key(context.get(), nullptr);
         });
}

bool RecordKeys::begin(evp_cipher_ctx_st* context, std::uint64_t number,
                       const std::byte* header) noexcept {
  Nonce nonce = mask_;
  for (std::size_t i = 0; i < sizeof number; ++i)
    nonce[nonce.size() - 1 - i] ^= static_cast<std::byte>(number >> (8 * i));
  int written = 0;
  return EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, raw(nonce.data()), -1) == 1 &&
         EVP_CipherUpdate(context, nullptr, &written, raw(header), kRecordHeaderBytes) == 1;
}

bool RecordKeys::seal(std::size_t lane, std::uint64_t number, ContentType type,
                      const Payload& payload, std::byte* to) noexcept {
  evp_cipher_ctx_st* const context = lanes_[lane].get();
  write_header(to, payload[0].size() + payload[1].size() + 1 + kTagBytes);
  if (!begin(context, number, to)) return false;
  to += kRecordHeaderBytes;
  const auto add = [&](const std::byte* bytes, std::size_t count) {
    int written = 0;
    if (EVP_CipherUpdate(context, raw(to), &written, raw(bytes), static_cast<int>(count)) != 1)
      return false;
    to += written;
    return true;
  };
  for (const std::span<const std::byte> part : payload)
    if (!part.empty() && !add(part.data(), part.size())) return false;
  const auto last = static_cast<std::byte>(type);
  int written = 0;
  return add(&last, 1) && EVP_CipherFinal_ex(context, raw(to), &written) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes, to) == 1;
}

std::optional<RecordKeys::Opened> RecordKeys::open(std::size_t lane, std::uint64_t number,
                                                   std::span<const std::byte> record,
                                                   std::byte* to) noexcept {
  evp_cipher_ctx_st* const context = lanes_[lane].get();
  std::array<std::byte, kTagBytes> tag;
  std::memcpy(tag.data(), record.last(kTagBytes).data(), kTagBytes);
  // The last byte is decrypted by itself: it is the content type if there is no padding.
  const auto text =
      record.subspan(kRecordHeaderBytes, record.size() - kRecordHeaderBytes - kTagBytes - 1);
  std::byte last{};
  int written = 0;
  if (!begin(context, number, record.data()) ||
      (!text.empty() && EVP_CipherUpdate(context, raw(to), &written, raw(text.data()),
                                         static_cast<int>(text.size())) != 1) ||
      EVP_CipherUpdate(context, raw(&last), &written, raw(text.data() + text.size()), 1) != 1 ||
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) != 1 ||
      EVP_CipherFinal_ex(context, raw(&last), &written) != 1) {
    return std::nullopt;
  }
  std::size_t bytes = text.size();
  while (last == std::byte{0} && bytes > 0) last = to[--bytes];
  return Opened{static_cast<ContentType>(last), bytes};
}

}  // namespace mccl::transport::tcp
