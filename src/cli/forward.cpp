#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/value_text.h"
#include "cli/command.h"
#include "cli/flag_values.h"
#include "cli/forward/relay.h"
#include "mccl/error.h"

namespace mccl::cli {
namespace {

constexpr const char* kFooter =
    R"(mccl launch starts it; it is not meant to be run by hand. It prints one of these lines:
  mccl-forward direct ADDRESS   one of the addresses answers at the port; mccl forward ends
  mccl-forward listening PORT   otherwise: it forwards connections of this user from that port of
                                127.0.0.1 to the socket, until its input ends)";
constexpr std::chrono::milliseconds kForAnswer{1500};

struct Flags {
  std::string socket;
  int port = 0;
  std::vector<std::string> addresses;
};

/// Prints an empty line first, because a start-up file may have printed an unfinished line.
int say(const std::string& what) {
  fmt::print("\nmccl-forward {}\n", what);
  return std::fflush(stdout) == 0 ? kGood : kFailed;
}

int run_forward(const Flags& flags) {
  const auto port = static_cast<std::uint16_t>(flags.port);
  const std::string direct = forward::first_that_answers(flags.addresses, port, kForAnswer);
  if (!direct.empty()) return say("direct " + direct);
#ifndef __linux__
  throw Error(
      "this system does not report the owner of a connection, so no connection is forwarded");
#endif
  forward::Relay relay(port, flags.socket);
  if (say(fmt::format("listening {}", relay.port())) != kGood) return kFailed;
  relay.run();
  return kGood;
}

}  // namespace

Command add_forward(CLI::App& program) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* app = program.add_subcommand("forward", "Connect the ranks of a host to torch's store");
  app->group("");
  app->footer(kFooter);
  app->add_option("--socket", flags->socket, "Local socket that reaches the store")->required();
  app->add_option("--port", flags->port, "The store's port")
      ->required()
      ->check(integer_between(1, 65535));
  app->add_option("--to", flags->addresses, "Address of the store's host; may be repeated")
      ->required()
      ->allow_extra_args(false)
      ->take_all();
  return {app, [flags] { return run_forward(*flags); }};
}

}  // namespace mccl::cli
