// Choice of the TCP congestion control.
#pragma once

#include <string>

#include "transport/tcp/socket.h"

namespace mccl::transport::tcp {

inline constexpr const char* kChosenForLinks = "auto";
inline constexpr const char* kOfTheSystem = "system";

/// Selects the congestion control `name` for a connection. kOfTheSystem leaves the system's
/// default. kChosenForLinks also leaves it unless it is a version of BBR, and then selects cubic,
/// or else reno, if the system allows it. BBR almost stops a connection for 200 ms every few
/// seconds, and after idle times, to measure the round-trip time (draft-ietf-ccwg-bbr, ProbeRTT);
/// all ranks of a collective would wait meanwhile. Returns false if the system does not have `name`
/// or does not allow this process to use it.
bool use_congestion_control(const Socket& socket, const std::string& name);

}  // namespace mccl::transport::tcp
