#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "cluster/read_facts.h"

using nlohmann::json;

/// In JSON, a limit is null (unknown), a number or "unlimited".
template <>
struct nlohmann::adl_serializer<mccl::cluster::Limit> {
  static void to_json(json& to, const mccl::cluster::Limit& limit) {
    if (limit) to = *limit == mccl::cluster::kNoLimit ? json("unlimited") : json(*limit);
  }
  static void from_json(const json& from, mccl::cluster::Limit& limit) {
    limit = from.is_number() ? from.get<long>() : mccl::cluster::kNoLimit;
  }
};

template <>
struct nlohmann::adl_serializer<std::optional<bool>> {
  static void to_json(json& to, const std::optional<bool>& value) {
    if (value) to = *value;
  }
  static void from_json(const json& from, std::optional<bool>& value) { value = from.get<bool>(); }
};

namespace mccl::cluster {

static void to_json(json& to, System system) { to = name_of(system); }
static void from_json(const json& from, System& system) {
  system = named<System>(from.get<std::string>(), 3);
}
static void to_json(json& to, InterfaceKind medium) { to = name_of(medium); }
static void from_json(const json& from, InterfaceKind& medium) {
  medium = named<InterfaceKind>(from.get<std::string>(), 5);
}
static void to_json(json& to, const Network& network) { to = text_of(network); }
static void from_json(const json& from, Network& network) {
  network = parse_network(from.get<std::string>()).value_or(Network{});
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Interface, name, kind, up, carrier, mbit_per_s, mtu,
                                                mac, addresses, link_local, bridge, joins, rdma,
                                                rp_filter)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Route, to, interface)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(InUse, network, by)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ThunderboltPort, receptacle, interface, own,
                                                peer_id, peer, mbit_per_s, through_dock)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RdmaDevice, name, interface, state, mbit_per_s,
                                                gids)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Gpu, name, memory_mib, driver)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    HostFacts, system, os, kernel, boot, processor, cores, governor, mhz, most_mhz, memory_gib,
    load, ranks, is_root, has_sudo, open_files, most_open_files, locked_kib, shared_kib,
    shared_writable, clock_off_s, mccl, asked_at, versions, settings, interfaces, routes, in_use,
    network_manager, setup_unconfirmed, ports, rdma, rdma_control, gpus, gpu_links, gpu_peers, odd)

namespace {

constexpr const char* kSource = "mccl probe";
constexpr std::size_t kMostEntries = 10'000;
constexpr std::size_t kLongestText = std::size_t{1} << 20;
constexpr const char* kAnyKey = "*";

/// Returns example facts, whose JSON shows the expected type of every value: each list has one
/// entry, each map has the key kAnyKey, and limits are unlimited.
json example_of_facts() {
  HostFacts facts;
  for (Limit* limit :
       {&facts.open_files, &facts.most_open_files, &facts.locked_kib, &facts.shared_kib})
    *limit = kNoLimit;
  facts.versions = facts.settings = {{kAnyKey, ""}};
  facts.interfaces.resize(1);
  facts.interfaces[0].carrier = true;
  facts.interfaces[0].addresses.resize(1);
  facts.interfaces[0].link_local.resize(1);
  facts.routes.resize(1);
  facts.in_use.resize(1);
  facts.ports.resize(1);
  facts.rdma.resize(1);
  facts.rdma[0].gids.resize(1);
  facts.gpus.resize(1);
  facts.odd.resize(1);
  return facts;
}

/// Describes, for people, the type of the values that have the form of `example`.
std::string text_of_form(const json& example) {
  if (example == "unlimited") return "a number or \"unlimited\"";
  if (example.is_string()) return "text";
  if (example.is_boolean()) return "true or false";
  if (example.is_number()) return "a number";
  if (example.is_object()) return "an object";
  return fmt::format("a list of at most {} entries", kMostEntries);
}

bool has_form(const json& value, const json& example) {
  if (example == "unlimited" && value.is_number()) return true;
  if (example == "unlimited") return value == example;
  if (example.is_string())
    return value.is_string() && value.get_ref<const std::string&>().size() <= kLongestText;
  if (example.is_number()) return value.is_number();
  if (example.is_array()) return value.is_array() && value.size() <= kMostEntries;
  return value.type() == example.type();
}

/// Makes `value` have the form of `example`. Clamps integers to their valid range. Removes members
/// that are null or that `example` lacks. Also removes members and list entries whose form differs
/// from that in `example`, and adds a finding to `noted` for each of these. Returns false if the
/// form of `value` itself differs.
bool keep_valid(json& value, const json& example, HostFacts& noted) {
  if (!has_form(value, example)) {
    note_odd(noted, kSource, text_of_form(example),
             value.dump(-1, ' ', false, json::error_handler_t::replace));
    return false;
  }
  if (example == "unlimited" && value.is_number())
    value = static_cast<long>(std::clamp(value.get<double>(), 0.0, 1e15));
  if (example.is_number_integer())
    value = static_cast<int>(std::clamp<double>(value.get<double>(), 0, INT_MAX));
  if (!value.is_structured()) return true;
  json kept = value.is_array() ? json::array() : json::object();
  for (auto& [key, member] : value.items()) {
    const auto form = value.is_array() ? example.begin()
                                       : example.find(example.contains(kAnyKey) ? kAnyKey : key);
    const bool counts = form != example.end() && (value.is_array() || !member.is_null());
    if (!counts || !keep_valid(member, *form, noted)) continue;
    if (value.is_array())
      kept.push_back(std::move(member));
    else
      kept[key] = std::move(member);
  }
  value = std::move(kept);
  return true;
}

/// Replaces each name that is not plain (is_plain_name()) by an empty string and adds a finding,
/// because names may appear in commands. Drops list entries that lack an essential field, such as
/// interfaces without a name.
void keep_plain(HostFacts& facts, HostFacts& noted) {
  const auto check = [&](std::string& name) { name = plain_name(noted, kSource, name); };
  for (Interface& each : facts.interfaces) {
    check(each.name);
    check(each.bridge);
    check(each.rdma);
    std::erase(each.addresses, Network{});
    std::stable_partition(each.addresses.begin(), each.addresses.end(),
                          [](const Network& n) { return !n.address.is_ipv6; });
  }
  for (Route& each : facts.routes) check(each.interface);
  for (ThunderboltPort& each : facts.ports) check(each.interface);
  for (RdmaDevice& each : facts.rdma) {
    check(each.name);
    check(each.interface);
  }
  for (Finding& each : facts.odd) check(each.id);
  check(facts.network_manager);
  std::erase_if(facts.interfaces, [](const Interface& each) { return each.name.empty(); });
  std::erase_if(facts.routes, [](const Route& each) { return each.to == Network{}; });
  std::erase_if(facts.in_use, [](const InUse& each) { return each.network == Network{}; });
  std::erase_if(facts.rdma, [](const RdmaDevice& each) { return each.name.empty(); });
  std::erase_if(facts.odd, [](const Finding& f) { return f.what.empty() || f.why.empty(); });
}

}  // namespace

json json_of(const HostFacts& facts) { return facts; }

HostFacts read_facts(const std::string& host, const json& said) {
  static const json kExample = example_of_facts();
  // Collects the checked values and the findings: first the findings of this function, then those
  // that the host reported.
  HostFacts noted;
  noted.host = host;
  json valid = said;
  HostFacts facts;
  if (keep_valid(valid, kExample, noted)) facts = valid.get<HostFacts>();
  facts.host = host;
  keep_plain(facts, noted);
  if (facts.system == System::unknown) note_odd(noted, kSource, "Linux or macOS", "");
  for (const auto& [name, version] : facts.versions) keep_version(noted, name, version);
  for (const auto& [name, value] : facts.settings) keep_variable(noted, name, value);
  facts.versions = noted.versions;
  facts.settings = noted.settings;
  for (Finding& finding : facts.odd) {
    finding.severity = Severity::warning;
    finding.where = host;
    keep_odd(noted, std::move(finding));
  }
  facts.odd = noted.odd;
  return facts;
}

}  // namespace mccl::cluster
