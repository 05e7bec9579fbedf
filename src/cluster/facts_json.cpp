#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "cluster/read_facts.h"

namespace mccl::cluster {
namespace {

using nlohmann::json;

constexpr const char* kSource = "mccl probe";
constexpr std::size_t kMostEntries = 10'000;
constexpr std::size_t kLongestText = std::size_t{1} << 20;
constexpr const char* kUnlimited = "unlimited";

/// Visits the fields of a HostFacts or one of its parts. `op` is a Writer or a Reader. Fields
/// passed to op.name() may appear in commands, so a Reader accepts only plain names for them.
template <typename Op>
void fields_of(Op& op, Interface& interface) {
  op.name("name", interface.name);
  op("kind", interface.medium);
  op("up", interface.up);
  op("carrier", interface.carrier);
  op("mbit_per_s", interface.mbit_per_s);
  op("mtu", interface.mtu);
  op("mac", interface.mac);
  op("addresses", interface.addresses, interface.addresses6);
  op("link_local", interface.link_local);
  op.name("bridge", interface.bridge);
  op("joins", interface.joins);
  op.name("rdma", interface.rdma);
  op("rp_filter", interface.rp_filter);
}

template <typename Op>
void fields_of(Op& op, Route& route) {
  op("to", route.to);
  op.name("interface", route.interface);
}

template <typename Op>
void fields_of(Op& op, InUse& in_use) {
  op("network", in_use.network);
  op("by", in_use.by);
}

template <typename Op>
void fields_of(Op& op, Port& port) {
  op("receptacle", port.receptacle);
  op.name("interface", port.interface);
  op("own", port.own);
  op("peer_id", port.peer);
  op("peer", port.peer_name);
  op("mbit_per_s", port.mbit_per_s);
  op("through_dock", port.through_dock);
}

template <typename Op>
void fields_of(Op& op, RdmaDevice& device) {
  op.name("name", device.name);
  op.name("interface", device.interface);
  op("state", device.state);
  op("mbit_per_s", device.mbit_per_s);
  op("gids", device.gids);
}

template <typename Op>
void fields_of(Op& op, Gpu& gpu) {
  op("name", gpu.name);
  op("memory_mib", gpu.memory_mib);
  op("driver", gpu.driver);
}

template <typename Op>
void fields_of(Op& op, Finding& finding) {
  op.name("id", finding.id);
  op("what", finding.what);
  op("why", finding.why);
  op("cure", finding.cure);
}

template <typename Op>
void fields_of(Op& op, HostFacts& facts) {
  op("system", facts.system);
  op("os", facts.os);
  op("kernel", facts.kernel);
  op("boot", facts.boot);
  op("processor", facts.processor);
  op("cores", facts.cores);
  op("governor", facts.governor);
  op("mhz", facts.mhz);
  op("most_mhz", facts.most_mhz);
  op("memory_gib", facts.memory_gib);
  op("load", facts.load);
  op("ranks", facts.ranks);
  op("is_root", facts.is_root);
  op("has_sudo", facts.has_sudo);
  op("open_files", facts.open_files);
  op("most_open_files", facts.most_open_files);
  op("locked_kib", facts.locked_kib);
  op("shared_kib", facts.shared_kib);
  op("shared_writable", facts.shared_writable);
  op("clock_off_s", facts.clock_off_s);
  op("mccl", facts.mccl);
  op("asked_at", facts.asked_at);
  op("versions", facts.versions);
  op("settings", facts.variables);
  op.list("interfaces", facts.interfaces);
  op.list("routes", facts.routes);
  op.list("in_use", facts.in_use);
  op.name("network_manager", facts.network_manager);
  op("setup_unconfirmed", facts.setup_unconfirmed);
  op.list("ports", facts.ports);
  op.list("rdma", facts.rdma);
  op("rdma_control", facts.rdma_control);
  op.list("gpus", facts.gpus);
  op("gpu_links", facts.gpu_links);
  op("gpu_peers", facts.gpu_peers);
  op.list("odd", facts.odd);
}

/// False for a part that lacks its essential fields; such parts are dropped.
bool is_whole(const Interface& interface) { return !interface.name.empty(); }
bool is_whole(const Route& route) { return route.to != Network{}; }
bool is_whole(const InUse& in_use) { return in_use.network != Network{}; }
bool is_whole(const RdmaDevice& device) { return !device.name.empty(); }
bool is_whole(const Finding& finding) { return !finding.what.empty() && !finding.why.empty(); }
template <typename Part>
bool is_whole(const Part&) {
  return true;
}

class Writer {
 public:
  explicit Writer(json& to) : to_(to) {}

  template <typename T>
  void operator()(const char* key, const T& value) {
    to_[key] = value;
  }
  void operator()(const char* key, Medium value) { to_[key] = name_of(value); }
  void operator()(const char* key, System value) { to_[key] = name_of(value); }
  void operator()(const char* key, const Network& value) { to_[key] = text_of(value); }
  void operator()(const char* key, const std::optional<bool>& value) {
    to_[key] = value ? json(*value) : json();
  }
  void operator()(const char* key, const std::optional<long>& value) {
    to_[key] = !value ? json() : (*value == kNoLimit ? json(kUnlimited) : json(*value));
  }
  void operator()(const char* key, const std::vector<Network>& ipv4,
                  const std::vector<Network6>& ipv6) {
    json all = json::array();
    for (const Network& network : ipv4) all.push_back(text_of(network));
    for (const Network6& network : ipv6) all.push_back(text_of(network));
    to_[key] = all;
  }
  void name(const char* key, const std::string& value) { to_[key] = value; }
  template <typename Part>
  void list(const char* key, std::vector<Part>& parts) {
    json all = json::array();
    for (Part& part : parts) {
      Writer writer(all.emplace_back(json::object()));
      fields_of(writer, part);
    }
    to_[key] = std::move(all);
  }

 private:
  json& to_;
};

/// Reads members of a JSON object. Leaves the target unchanged if the member is missing, null or
/// invalid.
class Reader {
 public:
  /// Adds a finding to `facts.odd` for each invalid member.
  Reader(HostFacts& facts, const json& from) : facts_(facts), from_(from) {
    if (!from.is_object()) odd("an object", from);
  }

  void operator()(const char* key, std::string& to) {
    if (const json* found = find(key)) text(*found, to);
  }
  void operator()(const char* key, bool& to) {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return odd("true or false", *found);
    to = found->get<bool>();
  }
  void operator()(const char* key, double& to) {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_number()) return odd("a number", *found);
    to = found->get<double>();
  }
  void operator()(const char* key, int& to) {
    double value = to;
    (*this)(key, value);
    to = static_cast<int>(std::clamp<double>(value, 0, INT_MAX));
  }
  void operator()(const char* key, std::optional<bool>& to) {
    bool value = false;
    (*this)(key, value);
    if (find(key) != nullptr) to = value;
  }
  void operator()(const char* key, std::optional<long>& to) {
    const json* found = find(key);
    if (found == nullptr) return;
    if (*found == kUnlimited) {
      to = kNoLimit;
    } else if (found->is_number()) {
      to = static_cast<long>(std::clamp(found->get<double>(), 0.0, 1e15));
    } else {
      odd("a number or \"unlimited\"", *found);
    }
  }
  void operator()(const char* key, Medium& to) {
    named(
        key, to,
        {Medium::cable, Medium::thunderbolt, Medium::wireless, Medium::software, Medium::loopback});
  }
  void operator()(const char* key, System& to) {
    named(key, to, {System::gnu_linux, System::macos});
  }
  void operator()(const char* key, Network& to) {
    std::string value;
    (*this)(key, value);
    if (const auto network = parse_network(value)) to = *network;
  }
  void operator()(const char* key, std::vector<std::string>& to) {
    each(key, [&](const json& entry) {
      std::string value;
      text(entry, value);
      if (!value.empty()) to.push_back(std::move(value));
    });
  }
  void operator()(const char* key, std::vector<Network>& ipv4, std::vector<Network6>& ipv6) {
    std::vector<std::string> all;
    (*this)(key, all);
    for (const std::string& value : all) {
      if (const auto network = parse_network(value)) ipv4.push_back(*network);
      if (const auto network = parse_network6(value)) ipv6.push_back(*network);
    }
  }
  void operator()(const char* key, std::map<std::string, std::string>& to) {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_object()) return odd("an object", *found);
    for (const auto& [name, value] : found->items()) text(value, to[name]);
  }
  void name(const char* key, std::string& to) {
    std::string value;
    (*this)(key, value);
    to = plain_name(facts_, kSource, value);
  }
  template <typename Part>
  void list(const char* key, std::vector<Part>& to) {
    each(key, [&](const json& entry) {
      Part part;
      Reader reader(facts_, entry);
      fields_of(reader, part);
      if (is_whole(part)) to.push_back(std::move(part));
    });
  }

 private:
  const json* find(const char* key) const {
    if (!from_.is_object()) return nullptr;
    const auto found = from_.find(key);
    return found == from_.end() || found->is_null() ? nullptr : &*found;
  }
  template <typename Then>
  void each(const char* key, Then&& then) {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_array() || found->size() > kMostEntries)
      return odd(fmt::format("a list of at most {} entries", kMostEntries), *found);
    for (const json& entry : *found) then(entry);
  }
  void text(const json& value, std::string& to) {
    const auto* found = value.get_ptr<const std::string*>();
    if (found == nullptr || found->size() > kLongestText) return odd("text", value);
    to = *found;
  }
  template <typename Named>
  void named(const char* key, Named& to, std::initializer_list<Named> all) {
    std::string name;
    (*this)(key, name);
    for (const Named each : all)
      if (name_of(each) == name) to = each;
  }
  void odd(const std::string& expected, const json& found) {
    note_odd(facts_, kSource, expected, found.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  HostFacts& facts_;
  const json& from_;
};

}  // namespace

json json_of(const HostFacts& facts) {
  json all = json::object();
  HostFacts copy = facts;
  Writer writer(all);
  fields_of(writer, copy);
  return all;
}

HostFacts read_facts(const std::string& host, const json& said) {
  HostFacts facts;
  facts.host = host;
  // Receives the checked values and the findings: first those of this parse, then the host's own.
  HostFacts noted;
  noted.host = host;
  Reader reader(noted, said);
  fields_of(reader, facts);
  if (facts.system == System::unknown) note_odd(noted, kSource, "Linux or macOS", "");
  for (const auto& [name, version] : std::exchange(facts.versions, {}))
    keep_version(noted, name, version);
  for (const auto& [name, value] : std::exchange(facts.variables, {}))
    keep_variable(noted, name, value);
  facts.versions = noted.versions;
  facts.variables = noted.variables;
  for (Finding& finding : facts.odd) {
    finding.severity = Severity::warning;
    finding.where = host;
    keep_odd(noted, std::move(finding));
  }
  facts.odd = noted.odd;
  return facts;
}

}  // namespace mccl::cluster
