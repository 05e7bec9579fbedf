#include "transport/tcp/congestion.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string_view>

namespace mccl::transport::tcp {

#ifdef TCP_CONGESTION

namespace {

bool take(const Socket& socket, std::string_view name) {
  return ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string present(const Socket& socket) {
  std::array<char, 32> name = {};
  socklen_t length = name.size() - 1;
  if (::getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0)
    return {};
  return name.data();
}

}  // namespace

bool use_congestion_control(const Socket& socket, const std::string& name) {
  if (name == kOfTheSystem) return true;
  if (name != kChosenForLinks) return take(socket, name);
  if (present(socket).starts_with("bbr") && !take(socket, "cubic")) (void)take(socket, "reno");
  return true;
}

#else

bool use_congestion_control(const Socket&, const std::string& name) {
  return name == kChosenForLinks || name == kOfTheSystem;
}

#endif

}  // namespace mccl::transport::tcp
