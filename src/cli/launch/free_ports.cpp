#include "cli/launch/free_ports.h"

#include "transport/tcp/listener.h"

namespace mccl::cli::launch {

std::vector<std::uint16_t> free_ports(std::size_t count) {
  using transport::tcp::Address;
  using transport::tcp::Listener;
  std::vector<Listener> held;
  std::vector<std::uint16_t> ports;
  held.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    held.emplace_back(*Address::parse_numeric("0.0.0.0", 0), 0);
    ports.push_back(held.back().address().port());
  }
  return ports;
}

bool is_free(std::uint16_t port) {
  using transport::tcp::Address;
  try {
    const transport::tcp::Listener listener(Address::wildcard(AF_INET, port), 0);
    return true;
  } catch (const transport::tcp::BindError&) {
    return false;
  }
}

}  // namespace mccl::cli::launch
