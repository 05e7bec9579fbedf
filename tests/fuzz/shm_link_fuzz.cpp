// The end of a shared-memory link that the peer has made. The peer controls the range's place and
// the counts in its rings. The input holds the place, followed by pairs of counts and a use of the
// link.
#include <unistd.h>

#include <array>

#include "input.h"
#include "mccl/error.h"
#include "transport/shm/link.h"

using mccl::fuzz::Input;
using namespace mccl::node;
using mccl::transport::shm::RingState;
using mccl::transport::shm::ShmLink;

namespace {

/// Sets the peer's counts in the first lines of the range: bytes written, bytes taken, and whether
/// each side has left.
void lie(std::span<std::byte> range, Input& input) {
  for (const std::size_t ring : {0, 1}) {
    RingState& state = reinterpret_cast<RingState*>(range.data())[ring];
    state.written = input.number<std::uint64_t>();
    state.taken = input.number<std::uint64_t>();
  }
  const std::size_t left = input.byte();
  reinterpret_cast<RingState*>(range.data())[left % 2].writer_left = left & 2;
  reinterpret_cast<RingState*>(range.data())[left % 2].reader_left = left & 4;
}

void use(ShmLink& link, Input& input) {
  const std::size_t wanted = input.number<std::uint16_t>();
  std::array<std::byte, 1024> memory{};
  switch (input.byte() % 4) {
    case 0: {
      // The peer decides the size of its rings. A peek beyond that would be the caller's mistake.
      const auto bytes = link.peek(std::min(wanted, link.peek_capacity()));
      mccl::fuzz::touch(bytes);
      link.consume(std::min(bytes.size(), wanted));
      break;
    }
    case 1: {
      const std::size_t n = link.read(memory);
      mccl::fuzz::require(n <= memory.size(), "more was read than there is room for");
      break;
    }
    case 2:
      (void)link.write(memory, std::span(memory).first(wanted % memory.size()));
      break;
    default:
      (void)link.borrowed();
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  // All inputs share one arena, since making it would dominate the run time.
  static const auto arena = Arena::make(std::size_t{1} << 20);
  static const Range range = arena->allocate(std::size_t{540} << 10, 1);
  static const PeerArena seen(mccl::Descriptor(::dup(arena->descriptor())));
  RangePlace place = range.place();
  place.offset ^= input.number<std::uint64_t>();
  place.bytes ^= input.number<std::uint64_t>();
  try {
    const auto link = ShmLink::join(seen, place, Bell(seen.header(), -1), "rank 1");
    while (!input.empty()) {
      lie(range.memory(), input);
      use(*link, input);
    }
  } catch (const mccl::CorruptionError&) {
  } catch (const mccl::transport::LinkClosed&) {
  }
  return 0;
}
