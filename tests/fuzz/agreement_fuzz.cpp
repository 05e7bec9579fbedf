// The settings of another rank, and the text that names the differences. The text must be printable
// and bounded, whatever the other rank has sent.
#include <algorithm>
#include <cstdint>

#include "input.h"
#include "rendezvous/connections/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kSettings = "chunk_bytes=4194304\ncompression=none\n";
  const mccl::fuzz::Input input(data, size);
  const std::string text = mccl::rendezvous::difference({0, kSettings}, {1, input.text()});
  mccl::fuzz::require(text.empty() == (input.text() == kSettings), "a difference was not found");
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  mccl::fuzz::require(std::ranges::none_of(text, is_control), "the text is not printable");
  mccl::fuzz::require(text.size() < 16384, "the text is not bounded");
  return 0;
}
