// Names of other namespaces that all of rendezvous uses.
#pragma once

#include <chrono>
#include <vector>

#include "transport/link.h"
#include "transport/tcp/interfaces.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"

namespace mccl::rendezvous {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using transport::LinkKey;
using transport::Purpose;
using transport::tcp::Address;
using transport::tcp::BindError;
using transport::tcp::HostPort;
using transport::tcp::InterfaceAddress;
using transport::tcp::list_interfaces;
using transport::tcp::Listener;
using transport::tcp::parse_host_port;
using transport::tcp::resolve;
using transport::tcp::Socket;

using Interfaces = std::vector<InterfaceAddress>;

}  // namespace mccl::rendezvous
