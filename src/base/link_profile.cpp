#include "base/link_profile.h"

namespace mccl {
namespace {

constexpr std::size_t kThunderboltBufferBytes = std::size_t{4} << 20;
/// Maximum message size. On a faster cable, messages must be larger for their fixed cost to be
/// negligible.
constexpr std::size_t kThunderboltChunkBytes = std::size_t{8} << 20;

bool is_thunderbolt(const Config& config) { return config.link_profile == "thunderbolt"; }

}  // namespace

std::size_t chunk_bytes_of(const Config& config) {
  // A C++ program may assign the field directly, without set().
  const bool given = config.chunk_bytes_given.yes || config.chunk_bytes != Config{}.chunk_bytes;
  return is_thunderbolt(config) && !given ? kThunderboltChunkBytes : config.chunk_bytes;
}

std::size_t socket_buffer_bytes_of(const Config& config) {
  if (config.socket_buffer_bytes > 0) return config.socket_buffer_bytes;
  return is_thunderbolt(config) ? kThunderboltBufferBytes : 0;
}

}  // namespace mccl
