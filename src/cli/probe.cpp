#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "base/json_text.h"
#include "cli/command.h"
#include "cli/flag_values.h"
#include "cli/probe/agent.h"

namespace mccl::cli {
namespace {

constexpr const char* kFooter =
    R"(Reads requests, one JSON object per line, and prints answers in the same form; ends with its
input. mccl doctor and mccl config start it on each host; it is not meant to be run by hand.
Requests and answers:
  {"do": "tell", "python": PATH, "patience": S}   {"mccl": .., "protocol": .., "clock": ..},
                                                  {"busy": PROGRAM}, {"told": {..}}
  {"do": "listen", "key": KEY}                    {"listening": {"ports": [..], "packets": PORT, ..}}
  {"do": "call", "name": N}                       {"called": true}; on other hosts
                                                  {"heard": {"at": .., "from": .., "name": N}}, or
                                                  {"unanswered": ..} if the caller does not answer
  {"do": "dial", TARGET}                          {"dialled": {"id": .., "good": .., ..}}
  {"do": "packet", TARGET, "bytes": N}            {"packet": {"id": .., "good": ..}}
  {"do": "time", TARGET, "seconds": S}            {"timed": {"id": .., "latency_s": .., ..}}
TARGET is "id", "to", "port", and optionally "from", the source address of the connection. The key
belongs to this run alone; only proofs that both ends know it go over the network.)";

#ifdef __APPLE__
constexpr const char* kThisSystem = "macos";
#else
constexpr const char* kThisSystem = "linux";
#endif

int run_probe(bool as_macos) {
  const auto agent = std::make_unique<probe::Agent>(as_macos);
  for (std::string line; std::getline(std::cin, line);)
    agent->obey(parse_json(line, "standard input of mccl probe", "a request"));
  // The requesting command has ended, so nothing would read the results of tests that still run.
  std::fflush(stdout);
  std::_Exit(kGood);
}

}  // namespace

Command add_probe(CLI::App& program) {
  const auto system = std::make_shared<std::string>(kThisSystem);
  CLI::App* app = program.add_subcommand("probe", "Answer mccl doctor and mccl config");
  app->group("");
  app->footer(kFooter);
  app->add_option("--system", *system,
                  "How to query this system: linux reads its files; macos runs its\nprograms, "
                  "whose recorded output tests replay. Default: this one")
      ->check(one_of({"linux", "macos"}))
      ->option_text("NAME");
  return {app, [system] { return run_probe(*system == "macos"); }};
}

}  // namespace mccl::cli
