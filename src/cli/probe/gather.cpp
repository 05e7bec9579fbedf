#include "cli/probe/gather.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <thread>

#include "base/cores.h"
#include "base/environment.h"
#include "base/first_line.h"
#include "base/value_text.h"
#include "cli/kit/program.h"
#include "cluster/read_facts.h"

namespace mccl::cli::probe {
namespace {

using cluster::HostFacts;

constexpr std::chrono::seconds kForProgram{15};

/// Omits packages that are half removed or cannot be read.
constexpr const char* kVersions = R"py(
import sys
print("python", sys.version.split()[0])
from importlib import metadata
names = "torch mlx mlx-metal mlx-cuda numpy mccl-engine".split()
for n in names + ["nvidia-nccl-cu%d" % cuda for cuda in range(10, 30)]:
    try:
        for d in metadata.distributions(name=n):
            if d.version and d.metadata["Name"].lower().replace("_", "-") == n:
                print(n, d.version)
                break
    except Exception:
        pass
)py";

std::optional<long> limit_of(rlim_t limit, long unit) {
  if (limit == RLIM_INFINITY) return cluster::kNoLimit;
  return static_cast<long>(limit / static_cast<rlim_t>(unit));
}

void gather_process(HostFacts& facts) {
  utsname names = {};
  if (::uname(&names) == 0) {
    facts.kernel = names.release;
    facts.processor = names.machine;
  }
  facts.is_root = ::getuid() == 0;
  const std::size_t allowed = cores_of_this_process().allowed.size();
  facts.cores = static_cast<int>(allowed > 0 ? allowed : std::thread::hardware_concurrency());
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.open_files = limit_of(limit.rlim_cur, 1);
    facts.most_open_files = limit_of(limit.rlim_max, 1);
  }
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_kib = limit_of(limit.rlim_cur, 1024);
}

void gather_gpus(HostFacts& facts, const Programs& programs) {
  if (programs.find("nvidia-smi").empty()) return;
  cluster::read_gpus(
      facts,
      programs.output_of(facts, {"nvidia-smi", "--query-gpu=name,memory.total,driver_version",
                                 "--format=csv,noheader,nounits"}));
  facts.gpu_links = programs.output_of(facts, {"nvidia-smi", "topo", "-m"});
  facts.gpu_peers = programs.output_of(facts, {"nvidia-smi", "topo", "-p2p", "r"});
}

/// True if `file` is a regular file of this user that was modified within the last minute.
bool is_fresh(const std::filesystem::path& file) {
  constexpr std::time_t kMinute = 60;
  struct stat status = {};
  const std::time_t now = std::time(nullptr);
  return ::lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_uid == ::geteuid() && status.st_mtime > now - kMinute &&
         status.st_mtime < now + kMinute;
}

/// True if a guard process waits in this host's network namespace to undo an unconfirmed set-up;
/// see cli/hosts/setup_run.h.
bool is_guarded() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string network = fs::read_symlink("/proc/self/ns/net", ignored).string();
  for (const fs::directory_entry& entry : fs::directory_iterator("/tmp", ignored)) {
    const fs::path& folder = entry.path();
    if (folder.filename().string().starts_with(cluster::kGuardPrefix) &&
        is_fresh(folder / "waits") && fs::exists(folder / "undecided", ignored) &&
        first_line(folder / "waits") == network)
      return true;
  }
  return false;
}

/// Over ssh, notes both addresses of the connection.
void note_ssh(HostFacts& facts, const Programs& programs) {
  const auto connection = programs.environment().find("SSH_CONNECTION");
  if (connection == programs.environment().end()) return;
  cluster::note_in_use(facts, connection->second, "an end of the ssh connection");
  const auto words = cluster::words_of(connection->second);
  if (words.size() == 4) facts.asked_at = words[2];
}

}  // namespace

Programs::Programs(Clock::time_point deadline, std::function<void(const std::string&)> busy)
    : deadline_(deadline), busy_(std::move(busy)), environment_(process_environment()) {}

std::string Programs::find(const std::string& program) const {
  return find_program(program, path_of(environment_, "/usr/bin:/bin:/usr/sbin:/sbin"));
}

Captured Programs::run(cluster::HostFacts& facts, std::vector<std::string> argv) const {
  const std::string name = argv.front();
  argv.front() = find(name);
  if (argv.front().empty() || Clock::now() >= deadline_) return {.output = "", .status = 1};
  busy_(name);
  const ProcessPlan plan{.argv = std::move(argv), .environment = environment_};
  Captured captured =
      capture(plan, {.time = std::min(Clock::now() + kForProgram, deadline_)}, false);
  if (captured.late)
    cluster::keep_odd(
        facts,
        {.id = "program-hangs",
         .severity = cluster::Severity::warning,
         .what = fmt::format("{} does not end", name),
         .where = facts.host,
         .why = "the facts that this program provides are missing from the results",
         .cure = fmt::format("run {} on this host, and find what the program waits for", name)});
  return captured;
}

void gather_macos(HostFacts& facts, const Programs& programs) {
  const auto said = [&](std::vector<std::string> argv) {
    return std::string(trimmed(programs.output_of(facts, std::move(argv))));
  };
  facts.system = cluster::System::macos;
  facts.os = "macOS " + said({"sw_vers", "-productVersion"});
  facts.boot = said({"sysctl", "-n", "kern.bootsessionuuid"});
  facts.cores = static_cast<int>(cluster::count_of(said({"sysctl", "-n", "hw.ncpu"})));
  const long memory = cluster::count_of(said({"sysctl", "-n", "hw.memsize"}));
  facts.memory_gib = static_cast<double>(memory) / (1 << 30);
  gather_macos_networks(facts, programs);
}

void gather_macos_networks(HostFacts& facts, const Programs& programs) {
  const auto said = [&](std::vector<std::string> argv) {
    return programs.output_of(facts, std::move(argv));
  };
  cluster::read_mac_network(
      facts, {{"ifconfig", said({"ifconfig", "-a"})},
              {"netstat", said({"netstat", "-rn", "-f", "inet"})},
              {"system_profiler", said({"system_profiler", "SPThunderboltDataType", "-json"})},
              {"networksetup", said({"networksetup", "-listallhardwareports"})},
              {"ibv_devices", said({"ibv_devices"})},
              {"rdma_ctl", said({"rdma_ctl", "status"})}});
  cluster::note_in_use(facts, said({"netstat", "-rn", "-f", "inet"}), "a gateway");
  cluster::note_in_use(facts, said({"arp", "-an"}), "a neighbour");
  cluster::note_in_use(facts, said({"scutil", "--dns"}), "a DNS server");
  cluster::note_in_use(facts, said({"netstat", "-n", "-f", "inet", "-p", "tcp"}), "a TCP peer");
  facts.network_manager = "networksetup";
}

HostFacts gather_networks(std::chrono::seconds patience) {
  const Programs programs(Clock::now() + patience, [](const std::string&) {});
  HostFacts facts;
  facts.host = "this machine";
  note_ssh(facts, programs);
#ifdef __APPLE__
  gather_macos_networks(facts, programs);
#else
  gather_linux_networks(facts, programs);
#endif
  return facts;
}

HostFacts gather(const std::string& python, std::chrono::seconds patience, bool as_macos,
                 std::function<void(const std::string&)> busy) {
  // All programs together may take three quarters of `patience`, because the requesting command
  // ignores an answer that arrives after `patience`.
  const Programs programs(Clock::now() + patience * 3 / 4, std::move(busy));
  HostFacts facts;
  gather_process(facts);
  // This call must precede all other additions to `in_use`, because addresses are dropped once
  // `in_use` is full.
  note_ssh(facts, programs);
  for (const auto& [name, value] : programs.environment())
    cluster::keep_variable(facts, name, value);
  (as_macos ? gather_macos : gather_linux)(facts, programs);
  facts.setup_unconfirmed = is_guarded();
  facts.has_sudo = !facts.is_root && programs.run(facts, {"sudo", "-n", "true"}).status == 0;
  const std::string found = programs.find(python).empty() ? "python3" : python;
  cluster::read_versions(facts, programs.output_of(facts, {found, "-c", kVersions}));
  facts.versions["mccl"] = MCCL_VERSION;
  gather_gpus(facts, programs);
  return facts;
}

}  // namespace mccl::cli::probe
