// How the system finds out how fast it may send.
#pragma once

#include <string>

#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

inline constexpr const char* kChosenForLinks = "auto";
inline constexpr const char* kOfTheSystem = "system";

/// Takes the congestion control of that name for a connection. kChosenForLinks leaves the system's,
/// unless that is a bbr: it stops a connection for 200 ms every few seconds, and whenever it has
/// been idle, to see how short the way is (draft-ietf-ccwg-bbr, ProbeRTT), for which all ranks of a
/// collective wait. Then cubic, or else reno, takes its place, where the system lets it. False when
/// the system has none of that name, or does not let this process take it.
bool use_congestion_control(const Socket& socket, const std::string& name);

}  // namespace mccl::transport::tcp
