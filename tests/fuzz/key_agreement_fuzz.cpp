// The store's values, which a stranger may have written to a store that cannot be guarded. The
// first byte selects MCCL_REQUIRE_KEY; the rest holds rank 0's offer, a zero byte, and its verdict.
// A rank that asks for proof must not take a key from the store.
#include <cstdint>

#include "input.h"
#include "mccl/error.h"
#include "rendezvous/store/key_agreement.h"

namespace {

class WrittenStore final : public mccl::Store {
 public:
  explicit WrittenStore(std::string_view text)
      : offer_(text.substr(0, text.find('\0'))),
        verdict_(offer_.size() < text.size() ? text.substr(offer_.size() + 1) : "") {}

  void set(const std::string&, std::string_view) override {}
  std::string get(const std::string& key, std::chrono::milliseconds) override {
    return key.ends_with("file") ? offer_ : verdict_;
  }
  std::int64_t add(const std::string&, std::int64_t) override { return 0; }

 private:
  std::string offer_;
  std::string verdict_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  mccl::Config config;
  config.require_key = (data[0] & 1) != 0 ? "0" : "auto";
  WrittenStore store({reinterpret_cast<const char*>(data + 1), size - 1});
  const mccl::Log log(1, mccl::LogLevel::off);
  try {
    mccl::rendezvous::agree_on_key({1, 3, config, store, log, mccl::Clock::now(), {}});
    mccl::fuzz::require(config.require_key == "0", "a key from an unguarded store was taken");
  } catch (const mccl::Error&) {
  }
  return 0;
}
