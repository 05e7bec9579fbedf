#include "cluster/read_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>

#include "base/value_text.h"

namespace mccl::cluster {
namespace {

using nlohmann::json;

constexpr const char* kSource = "mccl probe";
constexpr std::size_t kMostEntries = 4096;
constexpr std::size_t kMostRoutes = 10'000;
constexpr std::size_t kMostVersions = 64;
constexpr std::size_t kMostGpus = 64;
constexpr std::size_t kMostVariables = 256;
constexpr std::size_t kLongestVariable = 4096;
constexpr std::size_t kLongestText = std::size_t{1} << 20;
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kMostOdd = 16;
constexpr const char* kUnlimited = "unlimited";

std::string_view name_of(System system) {
  constexpr std::array<std::string_view, 3> kNames = {"unknown", "Linux", "macOS"};
  return kNames[static_cast<std::size_t>(system)];
}

/// Null where the value is no text.
const std::string* text_in(const json& value) { return value.get_ptr<const std::string*>(); }

/// Reads the members of an object. A member that is missing or null leaves its target unchanged.
class Fields {
 public:
  Fields(HostFacts& facts, const json& object) : facts_(facts), object_(object) {
    if (!object.is_object()) odd("an object", object);
  }

  void read(const char* key, std::string& to) const {
    const json* found = find(key);
    if (found == nullptr) return;
    const auto* text = text_in(*found);
    if (text == nullptr || text->size() > kLongestText) return odd("text", *found);
    to = *text;
  }
  void read(const char* key, bool& to) const {
    if (const json* found = find(key)) {
      if (!found->is_boolean()) return odd("true or false", *found);
      to = found->get<bool>();
    }
  }
  void read(const char* key, std::optional<bool>& to) const {
    if (find(key) == nullptr) return;
    bool value = false;
    read(key, value);
    to = value;
  }
  void read(const char* key, double& to) const {
    if (const json* found = find(key)) {
      if (!found->is_number()) return odd("a number", *found);
      to = found->get<double>();
    }
  }
  void read(const char* key, int& to) const {
    double value = to;
    read(key, value);
    to = static_cast<int>(std::clamp(value, 0.0, static_cast<double>(INT_MAX)));
  }
  /// A number, "unlimited", or nothing.
  void read(const char* key, std::optional<long>& to) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (*found == kUnlimited) {
      to = kNoLimit;
    } else {
      double value = 0;
      read(key, value);
      to = static_cast<long>(std::clamp(value, 0.0, 1e15));
    }
  }
  void read_name(const char* key, std::string& to) const {
    std::string name;
    read(key, name);
    to = plain_name(facts_, kSource, name);
  }
  /// Calls `then` for each entry of a list.
  template <typename Then>
  void each(const char* key, std::size_t most, Then&& then) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_array() || found->size() > most)
      return odd(fmt::format("a list of at most {}", most), *found);
    for (const json& entry : *found) then(entry);
  }
  template <typename Then>
  void each_text(const char* key, Then&& then) const {
    each(key, kMostEntries, [&](const json& entry) {
      const auto* text = text_in(entry);
      if (text == nullptr) return odd("text", entry);
      then(*text);
    });
  }
  /// Calls `then` for each member of an object of texts.
  template <typename Then>
  void each_pair(const char* key, Then&& then) const {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_object()) return odd("an object", *found);
    for (const auto& [name, value] : found->items()) {
      const auto* text = text_in(value);
      if (text == nullptr) return odd("text", value);
      then(name, *text);
    }
  }

 private:
  const json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void odd(const std::string& expected, const json& found) const {
    note_odd(facts_, kSource, expected,
             found.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, kLongestName));
  }

  HostFacts& facts_;
  const json& object_;
};

json json_of(const std::optional<long>& limit) {
  if (!limit) return {};
  return *limit == kNoLimit ? json(kUnlimited) : json(*limit);
}

json json_of(const Interface& interface) {
  json addresses = json::array();
  for (const auto& network : interface.addresses) addresses.push_back(text_of(network));
  for (const auto& network : interface.addresses6) addresses.push_back(text_of(network));
  return {{"name", interface.name},
          {"kind", name_of(interface.medium)},
          {"up", interface.up},
          {"carrier", interface.carrier ? json(*interface.carrier) : json()},
          {"mbit_per_s", interface.mbit_per_s},
          {"mtu", interface.mtu},
          {"mac", interface.mac},
          {"addresses", addresses},
          {"link_local", interface.link_local},
          {"bridge", interface.bridge},
          {"joins", interface.joins},
          {"rdma", interface.rdma},
          {"rp_filter", interface.rp_filter}};
}

void read_interface(HostFacts& facts, const json& said) {
  const Fields fields(facts, said);
  Interface interface;
  fields.read_name("name", interface.name);
  if (interface.name.empty()) return;
  std::string kind;
  fields.read("kind", kind);
  for (const Medium medium :
       {Medium::cable, Medium::thunderbolt, Medium::wireless, Medium::software, Medium::loopback})
    if (name_of(medium) == kind) interface.medium = medium;
  fields.read("up", interface.up);
  fields.read("carrier", interface.carrier);
  fields.read("mbit_per_s", interface.mbit_per_s);
  fields.read("mtu", interface.mtu);
  fields.read("mac", interface.mac);
  fields.each_text("addresses", [&](const std::string& text) {
    if (const auto network = parse_network(text)) interface.addresses.push_back(*network);
    if (const auto network6 = parse_network6(text)) interface.addresses6.push_back(*network6);
  });
  fields.each_text("link_local",
                   [&](const std::string& text) { interface.link_local.push_back(text); });
  fields.read_name("bridge", interface.bridge);
  fields.read("joins", interface.joins);
  fields.read_name("rdma", interface.rdma);
  fields.read("rp_filter", interface.rp_filter);
  facts.interfaces.push_back(std::move(interface));
}

void read_port(HostFacts& facts, const json& said) {
  const Fields fields(facts, said);
  Port port;
  fields.read("receptacle", port.receptacle);
  fields.read_name("interface", port.interface);
  fields.read("own", port.own);
  fields.read("peer_id", port.peer);
  fields.read("peer", port.peer_name);
  fields.read("mbit_per_s", port.mbit_per_s);
  fields.read("through_dock", port.through_dock);
  facts.ports.push_back(std::move(port));
}

void read_device(HostFacts& facts, const json& said) {
  const Fields fields(facts, said);
  RdmaDevice device;
  fields.read_name("name", device.name);
  if (device.name.empty()) return;
  fields.read_name("interface", device.interface);
  fields.read("state", device.state);
  fields.read("mbit_per_s", device.mbit_per_s);
  fields.each_text("gids", [&](const std::string& gid) { device.gids.push_back(gid); });
  facts.rdma.push_back(std::move(device));
}

void read_gpu(HostFacts& facts, const json& said) {
  const Fields fields(facts, said);
  Gpu gpu;
  fields.read("name", gpu.name);
  fields.read("memory_mib", gpu.memory_mib);
  fields.read("driver", gpu.driver);
  facts.gpus.push_back(std::move(gpu));
}

void read_machine(HostFacts& facts, const Fields& fields) {
  std::string system;
  fields.read("system", system);
  for (const System each : {System::gnu_linux, System::macos})
    if (name_of(each) == system) facts.system = each;
  if (facts.system == System::unknown) note_odd(facts, kSource, "Linux or macOS", system);
  fields.read("os", facts.os);
  fields.read("kernel", facts.kernel);
  fields.read("boot", facts.boot);
  fields.read("processor", facts.processor);
  fields.read("cores", facts.cores);
  fields.read("governor", facts.governor);
  fields.read("mhz", facts.mhz);
  fields.read("most_mhz", facts.most_mhz);
  fields.read("memory_gib", facts.memory_gib);
  fields.read("load", facts.load);
  fields.read("is_root", facts.is_root);
  fields.read("has_sudo", facts.has_sudo);
  fields.read("open_files", facts.open_files);
  fields.read("most_open_files", facts.most_open_files);
  fields.read("locked_kib", facts.locked_kib);
  fields.read("shared_kib", facts.shared_kib);
  fields.read("shared_writable", facts.shared_writable);
}

}  // namespace

std::string_view name_of(Medium medium) {
  constexpr std::array<std::string_view, 5> kNames = {"cable", "Thunderbolt", "Wi-Fi", "software",
                                                      "loopback"};
  return kNames[static_cast<std::size_t>(medium)];
}

const Interface* HostFacts::interface(const std::string& name) const {
  const auto found = std::ranges::find(interfaces, name, &Interface::name);
  return found == interfaces.end() ? nullptr : &*found;
}

std::vector<std::string> HostFacts::items_of(const std::string& variable) const {
  std::vector<std::string> items;
  const auto found = variables.find(variable);
  if (found == variables.end()) return items;
  const std::string& list = found->second;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = trimmed(std::string_view(list).substr(begin, end - begin));
    if (!item.empty()) items.emplace_back(item);
    begin = end + 1;
  }
  return items;
}

json json_of(const HostFacts& facts) {
  json all = {{"system", name_of(facts.system)},
              {"os", facts.os},
              {"kernel", facts.kernel},
              {"boot", facts.boot},
              {"processor", facts.processor},
              {"cores", facts.cores},
              {"governor", facts.governor},
              {"mhz", facts.mhz},
              {"most_mhz", facts.most_mhz},
              {"memory_gib", facts.memory_gib},
              {"load", facts.load},
              {"is_root", facts.is_root},
              {"has_sudo", facts.has_sudo},
              {"open_files", json_of(facts.open_files)},
              {"most_open_files", json_of(facts.most_open_files)},
              {"locked_kib", json_of(facts.locked_kib)},
              {"shared_kib", json_of(facts.shared_kib)},
              {"shared_writable", facts.shared_writable},
              {"clock_off_s", facts.clock_off_s},
              {"mccl", facts.mccl},
              {"versions", facts.versions},
              {"settings", facts.variables},
              {"rdma_control", facts.rdma_control},
              {"gpu_links", facts.gpu_links},
              {"gpu_peers", facts.gpu_peers}};
  for (const char* list : {"interfaces", "routes", "ports", "rdma", "gpus", "odd"})
    all[list] = json::array();
  for (const Interface& interface : facts.interfaces)
    all["interfaces"].push_back(json_of(interface));
  for (const Route& route : facts.routes)
    all["routes"].push_back({{"to", text_of(route.to)}, {"interface", route.interface}});
  for (const Port& port : facts.ports) {
    all["ports"].push_back({{"receptacle", port.receptacle},
                            {"interface", port.interface},
                            {"own", port.own},
                            {"peer_id", port.peer},
                            {"peer", port.peer_name},
                            {"mbit_per_s", port.mbit_per_s},
                            {"through_dock", port.through_dock}});
  }
  for (const RdmaDevice& device : facts.rdma) {
    all["rdma"].push_back({{"name", device.name},
                           {"interface", device.interface},
                           {"state", device.state},
                           {"mbit_per_s", device.mbit_per_s},
                           {"gids", device.gids}});
  }
  for (const Gpu& gpu : facts.gpus)
    all["gpus"].push_back(
        {{"name", gpu.name}, {"memory_mib", gpu.memory_mib}, {"driver", gpu.driver}});
  for (const Finding& finding : facts.odd)
    all["odd"].push_back({{"what", finding.what}, {"why", finding.why}, {"cure", finding.cure}});
  return all;
}

HostFacts read_facts(const std::string& host, const json& said) {
  HostFacts facts;
  facts.host = host;
  const Fields fields(facts, said);
  read_machine(facts, fields);
  fields.each_pair("versions", [&](const std::string& name, const std::string& version) {
    if (facts.versions.size() < kMostVersions && is_plain_name(name))
      facts.versions[name] = plain_name(facts, kSource, version);
  });
  fields.each_pair("settings", [&](const std::string& name, const std::string& value) {
    keep_variable(facts, name, value);
  });
  fields.each("interfaces", kMostEntries, [&](const json& each) { read_interface(facts, each); });
  fields.each("routes", kMostRoutes, [&](const json& each) {
    const Fields route(facts, each);
    std::string to;
    std::string interface;
    route.read("to", to);
    route.read_name("interface", interface);
    if (const auto network = parse_network(to)) facts.routes.push_back({*network, interface});
  });
  fields.each("ports", kMostEntries, [&](const json& each) { read_port(facts, each); });
  fields.each("rdma", kMostEntries, [&](const json& each) { read_device(facts, each); });
  fields.each("gpus", kMostGpus, [&](const json& each) { read_gpu(facts, each); });
  fields.read("rdma_control", facts.rdma_control);
  fields.read("gpu_links", facts.gpu_links);
  fields.read("gpu_peers", facts.gpu_peers);
  fields.each("odd", kMostOdd, [&](const json& each) {
    Finding finding{
        .severity = Severity::warning, .what = "", .where = host, .why = "", .cure = ""};
    const Fields texts(facts, each);
    texts.read("what", finding.what);
    texts.read("why", finding.why);
    texts.read("cure", finding.cure);
    if (facts.odd.size() < kMostOdd && !finding.what.empty() && !finding.why.empty())
      facts.odd.push_back(std::move(finding));
  });
  return facts;
}

void read_gpus(HostFacts& facts, std::string_view output) {
  for (const std::string_view line : lines_of(output)) {
    if (line.starts_with("No devices")) return;
    const std::size_t memory = line.find(',');
    const std::size_t driver = memory == line.npos ? memory : line.find(',', memory + 1);
    if (driver == line.npos || facts.gpus.size() == kMostGpus) {
      note_odd(facts, "nvidia-smi", "name, MiB, driver", line);
      return;
    }
    const long mib = count_of(line.substr(memory + 1, driver - memory - 1));
    facts.gpus.push_back({std::string(trimmed(line.substr(0, memory))),
                          static_cast<int>(std::min<long>(mib, INT_MAX)),
                          std::string(trimmed(line.substr(driver + 1)))});
  }
}

void read_versions(HostFacts& facts, std::string_view output) {
  for (const std::string_view line : lines_of(output)) {
    const auto words = words_of(line);
    if (words.size() == 2 && facts.versions.size() < kMostVersions && is_plain_name(words[0]))
      facts.versions[std::string(words[0])] = plain_name(facts, "python", words[1]);
  }
}

void keep_variable(HostFacts& facts, const std::string& name, const std::string& value) {
  if (!name.starts_with("MCCL_")) return;
  if (facts.variables.size() == kMostVariables || value.size() > kLongestVariable)
    return note_odd(facts, "env", "the settings of a shell", name);
  facts.variables[name] = name.ends_with("KEY") && !value.empty() ? "(set)" : value;
}

long count_of(std::string_view text) {
  return static_cast<long>(std::max<std::int64_t>(0, parse_integer(text).value_or(0)));
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("_.:@+-").find(c) != std::string_view::npos;
         });
}

std::string plain_name(HostFacts& facts, const std::string& source, std::string_view name) {
  if (name.empty() || is_plain_name(name)) return std::string(name);
  note_odd(facts, source, "a name of letters, digits and _.:@+-", name);
  return {};
}

void note_odd(HostFacts& facts, const std::string& source, const std::string& expected,
              std::string_view found) {
  if (facts.odd.size() == kMostOdd) return;
  facts.odd.push_back(
      {.severity = Severity::warning,
       .what = fmt::format("what {} says is not understood: expected {}; found {}", source,
                           expected, in_quotes(found.substr(0, 60))),
       .where = facts.host,
       .why = "what it would tell is missing from what follows",
       .cure =
           fmt::format("run {} there, and look whether its output is as it should be", source)});
}

}  // namespace mccl::cluster
