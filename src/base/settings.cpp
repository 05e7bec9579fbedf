#include "base/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "base/value_text.h"
#include "mccl/error.h"

namespace mccl {

namespace {

constexpr double kKiB = 1024;
constexpr double kGiB = kKiB * kKiB * kKiB;
constexpr double kYear = 31536000;
constexpr double kMaxRanks = 1 << 20;
constexpr double kAboveZero = std::numeric_limits<double>::denorm_min();

constexpr std::string_view kWithGpu = "reduce_on=gpu";

/// The members of a setting that most settings leave at their defaults.
struct Rest {
  std::optional<SettingKind> kind = {};  ///< If empty, the kind of the field's type is used.
  bool must_agree = false;
  bool secret = false;
  std::string_view only_with = {};
  double minimum = 0;
  double maximum = 0;
  Given Config::*given = nullptr;
  bool (*accepts)(std::string_view text) = nullptr;
};

/// A Setting without the members that setting_of() derives from other members.
struct SettingRow {
  std::string_view name;
  SettingField field;
  std::string_view range;
  std::string_view meaning;
  Rest rest = {};
};

using enum SettingKind;

constexpr SettingRow kRows[] = {
    {"backend",
     &Config::backend,
     "auto, native, mpi, nccl, cuda",
     "Backend that runs the calls. native: MCCL's own engine. mpi: the machine's MPI library; its "
     "mpirun, or srun, starts the ranks. nccl: NCCL runs collectives on GPU memory. cuda: MCCL's "
     "own kernels run them, on one host. Both need one GPU per rank; native runs all other calls. "
     "auto: native, and the faster of nccl and cuda if all ranks call with GPU memory",
     {.kind = choice}},
    {"transport",
     &Config::transport,
     "auto, tcp, shm, rdma",
     "Transport between ranks. auto: shared memory inside a machine, else RDMA if both ranks of a "
     "pair have it, else tcp; shm and rdma: an error if any pair cannot use it",
     {.kind = choice}},
    {"rdma_device", &Config::rdma_device, "device names, comma-separated, or a path",
     "RDMA devices to use; each gives one link per pair of ranks. Or the path of a JSON table of "
     "devices by pair, as for MLX_IBV_DEVICES; empty: all devices with an active port"},
    {"rdma_port",
     &Config::rdma_port,
     "1 to 63",
     "Port of the RDMA devices",
     {.minimum = 1, .maximum = 63}},
    {"rdma_gid",
     &Config::rdma_gid,
     "roce_v2, roce_v1, infiniband, ipv4, ipv6, or an address",
     "Address (GID) of the RDMA ports to use, or its kind; empty: the best kind that "
     "both ranks of a pair have",
     {.accepts = is_gid}},
    {"rdma_service",
     &Config::rdma_service,
     "auto, rc, uc",
     "Type of the queue pairs. rc retransmits lost data; with uc (the only type of Apple's "
     "devices), a loss ends the link; auto: rc if both ranks support it",
     {.kind = choice}},
    {"rdma_ring",
     &Config::rdma_ring,
     "true, false",
     "Use only those devices of the device table of MCCL_RDMA_DEVICE that join each rank to the "
     "next, as with MLX_JACCL_RING; an incomplete ring is an error",
     {.must_agree = true}},
    {"rdma_uncabled",
     &Config::rdma_uncabled,
     "relay, tcp",
     "How two ranks communicate if the device table of MCCL_RDMA_DEVICE lists no cable between "
     "them. relay: collectives use only cables, and other ranks forward the data; tcp: over TCP. "
     "send and recv use TCP in both cases",
     {.kind = choice, .must_agree = true}},
    {"log_level",
     &Config::log_level,
     "TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF",
     "Lowest level that is logged. INFO shows the changed settings and their origin, and the "
     "addresses and links of each rank; DEBUG shows every setting",
     {.kind = choice}},
    {"log_format",
     &Config::log_format,
     "text, json",
     "Format of log lines. json: one object per line, with time, level, rank, group and message",
     {.kind = choice}},
    {"log_file", &Config::log_file, "a path",
     "File or folder to which each rank logs. %r stands for the rank, %h for the host, %p for the "
     "process; without %r, the rank is appended to the name; empty: standard error"},
    {"log_file_bytes",
     &Config::log_file_bytes,
     "4K to 1T",
     "Size at which a log file, such as 0.log, is renamed to 0.1.log and a new one begins. Older "
     "files are kept as 0.2.log and 0.3.log",
     {.minimum = 4 * kKiB, .maximum = 1024.0 * kGiB}},
    {"listen_addr", &Config::listen_addr, "addresses or host names, comma-separated",
     "Addresses at which this rank listens. Each entry, even a repeated one, gives one link per "
     "pair of ranks; empty: all addresses of the interfaces in use, or loopback if all ranks run "
     "on this host"},
    {"link_profile",
     &Config::link_profile,
     "ethernet, thunderbolt",
     "Kind of cable, the same on all ranks; thunderbolt sets socket buffers of 4 MiB and messages "
     "of up to 8 MiB, if socket_buffer_bytes and chunk_bytes are not set",
     {.kind = choice}},
    {"port_base",
     &Config::port_base,
     "0 to 65535",
     "Rank r listens on port_base + r, which must not be MASTER_PORT; 0: any free port. If the "
     "port is taken and the setting is not set, a rank uses any free port",
     {.maximum = 65535, .given = &Config::port_base_given}},
    {"hostfile", &Config::hostfile, "a path",
     "JSON file with the addresses of every rank, in the format of MLX's ring. Ranks connect along "
     "the cables between them, and forward data for ranks without a cable"},
    {"ifname", &Config::ifname, "interface names, comma-separated",
     "Network interfaces to use; empty: all"},
    {"chunk_bytes",
     &Config::chunk_bytes,
     "4K to 1G",
     "Maximum size of a message on the wire; link_profile may change the default",
     {.must_agree = true,
      .minimum = 4 * kKiB,
      .maximum = kGiB,
      .given = &Config::chunk_bytes_given}},
    {"small_msg_threshold",
     &Config::small_msg_threshold,
     "0 to 1G",
     "An all_reduce of fewer bytes sends all data to all ranks in one step, if the group has at "
     "most 8 ranks and no shared memory",
     {.must_agree = true, .maximum = kGiB}},
    {"cross_memory",
     &Config::cross_memory,
     "auto, on, off",
     "Linux only: messages of more than 32 KiB between ranks of one host, and large buffers of "
     "some collectives, are copied once, from the memory of the sending process, instead of twice, "
     "through shared memory. auto: if that is measured to be faster when the job starts; on: "
     "wherever the system permits it",
     {.kind = choice, .must_agree = true}},
    {"shared_buffers", &Config::shared_buffers, "true, false",
     "Linux only: buffers that MCCL allocates for collectives, as mccl.empty() does, lie in memory "
     "that the other ranks of this host read where it lies. false: in ordinary memory"},
    {"transport_crc",
     &Config::transport_crc,
     "true, false",
     "Check every message with a CRC-32C",
     {.must_agree = true}},
    {"fast_math",
     &Config::fast_math,
     "true, false",
     "GPU kernels may fuse a multiplication and an addition, and may fail to recognise NaN; false: "
     "they follow IEEE 754",
     {.only_with = kWithGpu}},
    {"gpu_threshold",
     &Config::gpu_threshold,
     "0 to 1073741824",
     "Number of 16-bit floats below which an array is reduced on the CPU",
     {.kind = integer, .only_with = kWithGpu, .maximum = kGiB}},
    {"reduce_on",
     &Config::reduce_on,
     "auto, cpu, gpu",
     "Processor that reduces arrays of 16-bit floats: the CPU, or a Mac's GPU; auto: the CPU",
     {.kind = choice, .must_agree = true}},
    {"accelerate", &Config::accelerate, "true, false",
     "Compute sums of f32 with macOS's Accelerate"},
    {"force_staging", &Config::force_staging, "true, false",
     "Copy data to the host and back even if a Mac's GPU shares memory with the host; for "
     "diagnosis"},
    {"test_only_shared_gpu",
     &Config::test_only_shared_gpu,
     "no, nvlink, pcie",
     "For MCCL's own tests only: ranks that share a GPU use kernels, as if NVLink or PCIe joined "
     "two GPUs. Calls become a thousand times slower",
     {.kind = choice, .must_agree = true}},
    {"compression",
     &Config::compression,
     "none, auto, fp16, bf16, int8, fp8, fp8_e4m3, fp8_e5m2, int4, topk",
     "Codec that rounds sums of floats between machines; auto: bf16 for sums of f32 "
     "that bf16 is predicted to make at least a tenth faster",
     {.kind = choice, .must_agree = true}},
    {"topk_ratio",
     &Config::topk_ratio,
     "above 0, at most 1",
     "Fraction of the elements that compression=topk sends",
     {.must_agree = true, .minimum = kAboveZero, .maximum = 1}},
    {"compression_min_bytes",
     &Config::compression_min_bytes,
     "0 to 1G",
     "Calls with fewer bytes are exact, whatever the codec",
     {.must_agree = true, .maximum = kGiB}},
    {"shader_path",
     &Config::shader_path,
     "a path",
     "File of Metal shaders (.metal or .metallib); empty: the shaders of the package",
     {.only_with = kWithGpu}},
    {"algorithm",
     &Config::algorithm,
     "auto, direct, ring, ring_both, recursive_doubling, binomial_tree, chain, "
     "pairwise, dissemination, one_shot, two_shot, hierarchical, cable_tree",
     "Algorithm for all calls that it supports; auto: chosen by predicted cost",
     {.kind = choice, .must_agree = true}},
    {"socket_buffer_bytes",
     &Config::socket_buffer_bytes,
     "4K to 1G, or 0",
     "Size of the send and receive buffer of each TCP socket; 0: 4 MiB with "
     "link_profile=thunderbolt, else the system's default",
     {.minimum = 4 * kKiB, .maximum = kGiB}},
    {"pinned_limit_bytes",
     &Config::pinned_limit_bytes,
     "0 to 1T",
     "Pinned host memory kept per GPU between calls; a call may use more while it runs. In a "
     "process with several groups, the newest group's setting applies",
     {.maximum = 1024.0 * kGiB}},
    {"congestion_control", &Config::congestion_control, "auto, system, or a name such as cubic",
     "Congestion control of TCP links; auto: the system's default, but cubic or reno instead of "
     "bbr, which may pause a link for 200 ms"},
    {"timeout",
     &Config::timeout,
     "0.001 to 31536000 seconds",
     "Seconds that a call may last, unless it sets its own timeout",
     {.minimum = 0.001, .maximum = kYear}},
    {"connect_timeout",
     &Config::connect_timeout,
     "0.001 to 31536000 seconds",
     "Seconds to wait for the other ranks at start-up. After a group is destroyed, also the time "
     "without progress after which a link with unsent data is given up",
     {.minimum = 0.001, .maximum = kYear}},
    {"liveness_interval",
     &Config::liveness_interval,
     "0.001 to 31536000 seconds",
     "Seconds without data from a rank after which the other ranks consider it dead",
     {.must_agree = true, .minimum = 0.001, .maximum = kYear}},
    {"link_retry",
     &Config::link_retry,
     "0 to 31536000 seconds, or -1",
     "Seconds for which a rank tries to replace a TCP connection that broke while the other rank "
     "is alive; 0: a broken connection ends the job; -1: the value of liveness_interval",
     {.must_agree = true, .minimum = -1, .maximum = kYear}},
    {"warn_after",
     &Config::warn_after,
     "0 to 31536000 seconds",
     "Seconds that a call may wait without progress before a warning names the ranks that it waits "
     "for, repeated whenever the wait has doubled; 0: never",
     {.maximum = kYear}},
    {"flight_recorder_file", &Config::flight_recorder_file, "a path",
     "File or folder to which each rank writes its flight record, its last 4096 calls, when a "
     "group fails. %r, %h and %p have the same meaning as in log_file; empty: not written"},
    {"flight_recorder_signal",
     &Config::flight_recorder_signal,
     "none, USR1, USR2",
     "Signal on which a rank also writes flight_recorder_file. If the program handles the signal "
     "itself, MCCL warns and does not use it",
     {.kind = choice}},
    {"metrics_port",
     &Config::metrics_port,
     "1 to 65535, or 0",
     "Rank r serves its metrics for Prometheus at http://ADDRESS:PORT/metrics, where ADDRESS is "
     "metrics_addr and PORT is metrics_port + r; 0: not served",
     {.maximum = 65535}},
    {"metrics_addr",
     &Config::metrics_addr,
     "an IP address",
     "Address at which metrics_port listens, without a password; 0.0.0.0 or :: stand for all "
     "addresses of the host",
     {.accepts = is_ip_address}},
    {"spin_us",
     &Config::spin_us,
     "0 to 1000000 microseconds",
     "Microseconds for which a waiting caller polls for data before it sleeps. The progress "
     "thread, and ranks that share cores, poll a quarter of this time",
     {.maximum = 1e6}},
    {"calibrate",
     &Config::calibrate,
     "true, false",
     "Measure links and memory when a job starts, for the choice of algorithms",
     {.must_agree = true}},
    {"link_latency_us",
     &Config::link_latency_us,
     "up to 1000000 microseconds, or 0",
     "Latency of the links between machines, for the choice of algorithms; 0: measure it",
     {.must_agree = true, .maximum = 1e6}},
    {"link_gbit",
     &Config::link_gbit,
     "up to 100000 Gbit/s, or 0",
     "Rate of the links between machines, for the choice of algorithms; 0: measure it",
     {.must_agree = true, .maximum = 1e5}},
    {"job_key",
     &Config::job_key,
     "any text",
     "Secret shared by the ranks of a job; a process without it cannot join",
     {.kind = text, .secret = true}},
    {"require_key",
     &Config::require_key,
     "auto, 1, 0",
     "Whether a job of several ranks needs MCCL_JOB_KEY. auto: only if the ranks run on several "
     "hosts, as several users or in several containers; 1: always; 0: never, and any process that "
     "reaches rank 0 while ranks start can join",
     {.kind = choice}},
    {"encryption",
     &Config::encryption,
     "off, on",
     "Encrypt all TCP connections between ranks, with TLS 1.3",
     {.kind = choice, .must_agree = true}},
    {"kernel_tls",
     &Config::kernel_tls,
     "auto, on, off",
     "Let the Linux kernel encrypt, where it can. auto: if the rank has no core for threads that "
     "encrypt",
     {.kind = choice, .only_with = "encryption=on"}},
    {"tls_cert",
     &Config::tls_cert,
     "a path",
     "PEM file of this rank's certificate; empty: ranks prove only that they know the job key",
     {.only_with = "encryption=on"}},
    {"tls_key",
     &Config::tls_key,
     "a path",
     "PEM file of the certificate's private key",
     {.only_with = "encryption=on"}},
    {"tls_ca",
     &Config::tls_ca,
     "a path",
     "PEM file of the authorities that must have signed the other ranks' certificates",
     {.only_with = "encryption=on"}},
    {"rank",
     &Config::rank,
     "0 to 1048575, or -1 for not set",
     "Rank of this process, if no framework provides it",
     {.maximum = kMaxRanks - 1}},
    {"world_size",
     &Config::world_size,
     "1 to 1048576, or -1 for not set",
     "Number of ranks, if no framework provides it",
     {.minimum = 1, .maximum = kMaxRanks}},
    {"root", &Config::root, "host:port",
     "Address at which rank 0 serves the store through which ranks connect, if no framework "
     "provides it"},
};

Setting setting_of(const SettingRow& row) {
  // The kinds and their names. The first five are the default kinds of the types of SettingField,
  // in the same order.
  constexpr SettingKind kKinds[] = {text, integer, bytes, number, boolean, choice};
  constexpr std::string_view kNames[] = {"text", "integer", "bytes", "number", "boolean", "choice"};
  Setting setting;
  setting.kind = row.rest.kind.value_or(kKinds[row.field.index()]);
  setting.field = row.field;
  setting.minimum = row.rest.minimum;
  setting.maximum = row.rest.maximum;
  setting.given = row.rest.given;
  setting.accepts = row.rest.accepts;
  setting.info.name = row.name;
  setting.info.type = kNames[std::ranges::find(kKinds, setting.kind) - kKinds];
  setting.info.range = row.range;
  setting.info.meaning = row.meaning;
  setting.info.must_agree = row.rest.must_agree;
  setting.info.secret = row.rest.secret;
  setting.info.only_with = row.rest.only_with;
  setting.info.default_value = text_of(Config{}, setting);
  return setting;
}

/// Returns the environment variable of each row: MCCL_ and the name in upper case.
std::vector<std::string> variables() {
  std::vector<std::string> all;
  for (const SettingRow& row : kRows) {
    std::string& variable = all.emplace_back(kVariablePrefix);
    for (const char c : row.name) variable += c == '_' ? c : static_cast<char>(c - 'a' + 'A');
  }
  return all;
}

}  // namespace

std::span<const Setting> setting_table() {
  // Never destroyed, because copies of a SettingInfo refer to the names.
  static const auto& names = *new const std::vector<std::string>(variables());
  static const std::vector<Setting> table = [] {
    std::vector<Setting> result;
    for (const SettingRow& row : kRows) {
      result.push_back(setting_of(row));
      result.back().info.variable = names[result.size() - 1];
    }
    return result;
  }();
  return table;
}

std::span<const SettingInfo> settings() {
  static const std::vector<SettingInfo> infos = [] {
    std::vector<SettingInfo> result;
    for (const Setting& setting : setting_table()) result.push_back(setting.info);
    return result;
  }();
  return infos;
}

const Setting& find_setting(std::string_view name) {
  const std::span<const Setting> table = setting_table();
  const auto found = std::ranges::find_if(table, [&](const Setting& setting) {
    return setting.info.name == name || setting.info.variable == name;
  });
  if (found != table.end()) return *found;

  if (name == kConfigFileVariable)
    throw InvalidArgument(fmt::format(
        "{} names a file of settings and is read only from the environment", kConfigFileVariable));
  if (name == kMlxVariable)
    throw InvalidArgument(
        fmt::format("{} is read only from the environment, when Python starts; call "
                    "mccl.mlx.install() in a program instead",
                    kMlxVariable));
  const std::string_view prefix = name.starts_with(kVariablePrefix) ? kVariablePrefix : "";
  std::vector<std::string_view> candidates;
  if (!prefix.empty())
    for (const std::string_view variable : {kConfigFileVariable, kMlxVariable})
      candidates.push_back(variable.substr(prefix.size()));
  for (const Setting& setting : table)
    candidates.push_back(prefix.empty() ? setting.info.name
                                        : setting.info.variable.substr(prefix.size()));
  // The comparison leaves out the prefix, which all variables have in common.
  const auto nearest = nearest_of(name.substr(prefix.size()), candidates);
  const std::string advice = nearest ? fmt::format("did you mean {}{}?", prefix, *nearest)
                                     : "remove it; docs/settings.md lists all settings";
  throw InvalidArgument(fmt::format("{} is not a setting; {}", printable(name), advice));
}

}  // namespace mccl
