// Choice of the TCP congestion control.
#pragma once

#include <string>

#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

inline constexpr const char* kChosenForLinks = "auto";
inline constexpr const char* kOfTheSystem = "system";

/// Selects the congestion control `name` for a connection. kOfTheSystem keeps the system's default.
/// kChosenForLinks keeps it too, except that it replaces every version of BBR by cubic, or by reno,
/// if the system allows one of them. BBR almost stops a connection for 200 ms every few seconds,
/// and after idle times, to measure the round-trip time (draft-ietf-ccwg-bbr, ProbeRTT). During
/// such a pause, all ranks of a collective would wait. Returns false if the system does not have
/// `name` or does not allow this process to use it.
bool use_congestion_control(const Socket& socket, const std::string& name);

}  // namespace mccl::transport::tcp
