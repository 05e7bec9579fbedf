// News of cables must survive being encoded and decoded again, and must not break a LinkState.
#include <cstdint>
#include <cstdlib>

#include "input.h"
#include "mccl/error.h"
#include "rendezvous/cabling/link_state.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl::rendezvous;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const CableNews news = decode_news(bytes, 5);
    const Bytes again = encode(news);
    const auto body = std::span(again).subspan(kNewsHeaderBytes);
    if (news_bytes(again) != body.size() || encode(decode_news(body, 5)) != again) std::abort();
    LinkState state(0, 5, 1);
    state.hear(news);
    state.hear(news);
    (void)state.both_ends_see_all();
  } catch (const mccl::CorruptionError&) {
  }
  return 0;
}
