#include "cluster/picture.h"

#include <fmt/format.h>

#include "base/value_text.h"
#include "cluster/table.h"

namespace mccl::cluster {
namespace {

constexpr const char* kBegin = R"(graph cluster {
  layout=circo;
  mindist=1.8;
  nodesep=0.7;
  node [shape=box, style=rounded, fontname="Helvetica", width=1.5];
  edge [fontname="Helvetica", fontsize=10, penwidth=2, labeldistance=2];
)";

/// Quotes and escapes a text as a DOT string.
std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += c;
  }
  return fmt::format("\"{}\"", safe);
}

const char* colour_of(Medium medium) {
  switch (medium) {
    case Medium::thunderbolt:
      return "#b4540a";
    case Medium::wireless:
      return "#9aa0a6";
    default:
      return "#1f5fa8";
  }
}

}  // namespace

std::string dot_of(const Joined& joined, std::span<const HostFacts> hosts) {
  std::string text = kBegin;
  const auto name = [&](int host) { return quoted(hosts[static_cast<std::size_t>(host)].host); };
  for (std::size_t host = 0; host < hosts.size(); ++host)
    text += fmt::format("  {};\n", name(static_cast<int>(host)));
  for (const Link& link : joined.links) {
    text += fmt::format("  {} -- {} [label={}, taillabel={}, headlabel={}, color=\"{}\"];\n",
                        name(link.a.host), name(link.b.host), quoted(rate_text(link.mbit_per_s)),
                        quoted(link.a.interface), quoted(link.b.interface), colour_of(link.medium));
  }
  for (std::size_t i = 0; i < joined.networks.size(); ++i) {
    const Wire& wire = joined.networks[i];
    const std::string hub = quoted(fmt::format("network {}", i + 1));
    text += fmt::format("  {} [shape=ellipse];\n", hub);
    for (const End& end : wire.ends)
      text += fmt::format("  {} -- {} [label={}, taillabel={}, color=\"{}\"];\n", name(end.host),
                          hub, quoted(rate_text(wire.mbit_per_s)), quoted(end.interface),
                          colour_of(wire.medium));
  }
  return text + "}\n";
}

}  // namespace mccl::cluster
