// The environment in which a launcher has started a process, as lines of NAME=VALUE, and the Slurm
// allocation in it. A placement must be one that a job can have.
#include "base/value_text.h"
#include "cli/launch/hostfile.h"
#include "input.h"
#include "mccl/error.h"
#include "mccl/meeting.h"
#include "rendezvous/connections/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mccl;
  std::string_view text = fuzz::Input(data, size).text();
  std::map<std::string, std::string> environment;
  while (!text.empty()) {
    std::string_view value = rendezvous::next_part(text, '\n');
    const std::string name(rendezvous::next_part(value, '='));
    environment[name] = value;
  }
  for (const bool has_root : {false, true}) {
    Config config;
    if (has_root) config.root = "10.0.0.1:1";
    try {
      const auto found = find_placement(config, environment);
      if (!found) continue;
      fuzz::require(found->rank >= 0 && found->rank < found->size, "a rank outside the job");
      fuzz::require(!found->root.empty() || found->pmi >= 0 || found->size == 1,
                    "no meeting point");
    } catch (const InvalidArgument&) {
    }
  }
  try {
    for (const auto& host : cli::launch::hosts_of_allocation(environment))
      fuzz::require(!host.name.empty() && host.slots.value_or(1) >= 1,
                    "a host without a name or a slot");
  } catch (const InvalidArgument&) {
  }
  return 0;
}
