#include "cli/config/hostfile_text.h"

#include <fmt/format.h>

namespace mccl::cli::config {
namespace {

using Json = nlohmann::ordered_json;

Json entry_of(const Host& host, const cluster::Entry& entry) {
  // MLX passes "ssh" to ssh, which accepts user@name but no port after it.
  Json json = {{"ssh", host.user.empty() ? host.name : host.user + "@" + host.name},
               {"ips", entry.ips},
               {"rdma", entry.rdma}};
  if (host.port != 0) json["port"] = host.port;
  if (host.slots) json["slots"] = *host.slots;
  if (!host.python.empty()) json["python"] = host.python;
  if (!host.directory.empty()) json["cwd"] = host.directory;
  if (!host.environment.empty()) json["env"] = host.environment;
  return json;
}

/// Replaces invalid UTF-8, since names reported by hosts may contain any bytes.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string hostfile_text(std::span<const Host> hosts, std::span<const cluster::Entry> entries,
                          const std::string& backend, const std::vector<std::string>& variables) {
  std::string text = "{\n";
  if (!backend.empty()) text += fmt::format("  \"backend\": {},\n", text_of(backend));
  text += fmt::format("  \"envs\": {},\n  \"hosts\": [\n", text_of(variables));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Host& host = hosts[static_cast<std::size_t>(entries[i].host)];
    text += fmt::format("    {}{}\n", text_of(entry_of(host, entries[i])),
                        i + 1 < entries.size() ? "," : "");
  }
  return text + "  ]\n}\n";
}

}  // namespace mccl::cli::config
