#include "base/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
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

std::string_view type_name(SettingKind kind) {
  switch (kind) {
    case SettingKind::text:
      return "text";
    case SettingKind::integer:
      return "integer";
    case SettingKind::number:
      return "number";
    case SettingKind::bytes:
      return "bytes";
    case SettingKind::boolean:
      return "boolean";
    case SettingKind::choice:
      return "choice";
  }
  return "text";
}

/// A Setting without the members that are derived from the others.
struct Row {
  std::string_view name = {};
  std::string_view variable = {};
  std::string_view range = {};
  std::string_view meaning = {};
  SettingKind kind = SettingKind::text;
  bool must_agree = false;
  bool secret = false;
  std::string_view only_with = {};
  SettingField field = {};
  double minimum = 0;
  double maximum = 0;
  Given Config::*given = nullptr;
  bool (*accepts)(std::string_view text) = nullptr;
};

using enum SettingKind;

constexpr Row kRows[] = {
    {.name = "backend",
     .variable = "MCCL_BACKEND",
     .range = "auto, native, mpi, nccl, cuda",
     .meaning = "Backend that runs the calls. native: MCCL's own engine. mpi: the machine's MPI "
                "library, whose mpirun or srun starts the ranks. nccl, cuda: NCCL, or MCCL's own "
                "kernels inside a host, run the collectives on GPU memory that they support, with "
                "one GPU per rank; native runs the rest. auto: native, and the faster of nccl and "
                "cuda if all ranks call with GPU memory",
     .kind = choice,
     .field = &Config::backend},
    {.name = "transport",
     .variable = "MCCL_TRANSPORT",
     .range = "auto, tcp, shm, rdma",
     .meaning = "Transport between ranks; each pair agrees on one. auto: shared memory inside a "
                "machine, else RDMA if both ranks have it, else tcp. shm and rdma apply to all "
                "pairs; an error names any pair that cannot use it and the reason",
     .kind = choice,
     .field = &Config::transport},
    {.name = "rdma_device",
     .variable = "MCCL_RDMA_DEVICE",
     .range = "device names, comma-separated, or a path",
     .meaning =
         "RDMA devices to use, with one link per device in each pair; or the path of a JSON table "
         "of devices by pair, as for MLX_IBV_DEVICES; empty: all devices with an active port",
     .field = &Config::rdma_device},
    {.name = "rdma_port",
     .variable = "MCCL_RDMA_PORT",
     .range = "1 to 63",
     .meaning = "Port of the RDMA devices",
     .kind = integer,
     .field = &Config::rdma_port,
     .minimum = 1,
     .maximum = 63},
    {.name = "rdma_gid",
     .variable = "MCCL_RDMA_GID",
     .range = "roce_v2, roce_v1, infiniband, ipv4, ipv6, or an address",
     .meaning = "Address (GID) of the RDMA ports to use, or its kind; empty: the best kind that "
                "both ranks of a pair have",
     .field = &Config::rdma_gid,
     .accepts = is_gid},
    {.name = "rdma_service",
     .variable = "MCCL_RDMA_SERVICE",
     .range = "auto, rc, uc",
     .meaning = "Type of the queue pairs. rc retransmits lost data; uc (the only type of Apple's "
                "devices) ends the link with an error; auto: rc if both ranks support it",
     .kind = choice,
     .field = &Config::rdma_service},
    {.name = "rdma_ring",
     .variable = "MCCL_RDMA_RING",
     .range = "true, false",
     .meaning = "Use only the devices of an RDMA device table that join each rank to the next, as "
                "with MLX_JACCL_RING; an incomplete ring is an error",
     .kind = boolean,
     .must_agree = true,
     .field = &Config::rdma_ring},
    {.name = "rdma_uncabled",
     .variable = "MCCL_RDMA_UNCABLED",
     .range = "relay, tcp",
     .meaning =
         "How to connect two ranks for which the table of RDMA devices lists no cable. relay: "
         "collectives use only the cables, and ranks forward data for others; tcp: such "
         "ranks are connected by TCP. send and recv between them use TCP in both cases",
     .kind = choice,
     .must_agree = true,
     .field = &Config::rdma_uncabled},
    {.name = "log_level",
     .variable = "MCCL_LOG_LEVEL",
     .range = "TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF",
     .meaning = "Lowest level that is logged. INFO shows at start-up the changed settings and "
                "their origin, the address at which each rank listens, and how it reaches the "
                "others; DEBUG shows every setting",
     .kind = choice,
     .field = &Config::log_level},
    {.name = "listen_addr",
     .variable = "MCCL_LISTEN_ADDR",
     .range = "addresses or host names, comma-separated",
     .meaning = "Addresses at which this rank listens; several addresses, or one several times, "
                "give several links per pair; empty: found from the routes",
     .field = &Config::listen_addr},
    {.name = "link_profile",
     .variable = "MCCL_LINK_PROFILE",
     .range = "ethernet, thunderbolt",
     .meaning = "Kind of cable, the same on all ranks; thunderbolt sets socket buffers of 4 MiB "
                "and messages of up to 8 MiB, unless those are set",
     .kind = choice,
     .field = &Config::link_profile},
    {.name = "port_base",
     .variable = "MCCL_PORT_BASE",
     .range = "0 to 65535",
     .meaning = "Rank r listens on port_base + r, which must not be MASTER_PORT; 0: any free port. "
                "If the setting is not set and the port is taken, a rank uses any free port",
     .kind = integer,
     .field = &Config::port_base,
     .maximum = 65535,
     .given = &Config::port_base_given},
    {.name = "hostfile",
     .variable = "MCCL_HOSTFILE",
     .range = "a path",
     .meaning = "JSON file with the addresses of every rank, in the format of MLX's ring: the "
                "ranks connect along the cables between them, and forward data for ranks without a "
                "direct cable; empty: every rank reaches every other",
     .field = &Config::hostfile},
    {.name = "ifname",
     .variable = "MCCL_IFNAME",
     .range = "interface names, comma-separated",
     .meaning = "Network interfaces to use; empty: all",
     .field = &Config::ifname},
    {.name = "chunk_bytes",
     .variable = "MCCL_CHUNK_BYTES",
     .range = "4K to 1G",
     .meaning = "Largest message on the wire. If this is not set, link_profile may change it",
     .kind = bytes,
     .must_agree = true,
     .field = &Config::chunk_bytes,
     .minimum = 4 * kKiB,
     .maximum = kGiB,
     .given = &Config::chunk_bytes_given},
    {.name = "small_msg_threshold",
     .variable = "MCCL_SMALL_MSG_THRESHOLD",
     .range = "0 to 1G",
     .meaning =
         "Bytes below which all_reduce sends all data to all ranks in one step, in groups of "
         "at most 8 ranks without shared memory; with shared memory, predicted cost decides",
     .kind = bytes,
     .must_agree = true,
     .field = &Config::small_msg_threshold,
     .maximum = kGiB},
    {.name = "transport_crc",
     .variable = "MCCL_TRANSPORT_CRC",
     .range = "true, false",
     .meaning = "Check every message with a CRC-32C",
     .kind = boolean,
     .must_agree = true,
     .field = &Config::transport_crc},
    {.name = "fast_math",
     .variable = "MCCL_FAST_MATH",
     .range = "true, false",
     .meaning = "GPU kernels may fuse multiply and add, and relax NaN; false: IEEE",
     .kind = boolean,
     .only_with = kWithGpu,
     .field = &Config::fast_math},
    {.name = "gpu_threshold",
     .variable = "MCCL_GPU_THRESHOLD",
     .range = "0 to 1073741824",
     .meaning = "Elements below which 16-bit floats are reduced on the CPU",
     .kind = integer,
     .only_with = kWithGpu,
     .field = &Config::gpu_threshold,
     .maximum = kGiB},
    {.name = "reduce_on",
     .variable = "MCCL_REDUCE_ON",
     .range = "auto, cpu, gpu",
     .meaning =
         "Processor that reduces arrays of 16-bit floats: the CPU, or a Mac's GPU; auto: the CPU",
     .kind = choice,
     .must_agree = true,
     .field = &Config::reduce_on},
    {.name = "accelerate",
     .variable = "MCCL_ACCELERATE",
     .range = "true, false",
     .meaning =
         "Compute sums of f32 with macOS's Accelerate; `mccl bench kernels` shows which is faster",
     .kind = boolean,
     .field = &Config::accelerate},
    {.name = "force_staging",
     .variable = "MCCL_FORCE_STAGING",
     .range = "true, false",
     .meaning =
         "Copy data to the host and back even if a Mac's GPU shares memory with it; for diagnosis",
     .kind = boolean,
     .field = &Config::force_staging},
    {.name = "test_only_shared_gpu",
     .variable = "MCCL_TEST_ONLY_SHARED_GPU",
     .range = "no, nvlink, pcie",
     .meaning = "For MCCL's own tests only, because calls become a thousand times slower: also use "
                "kernels between ranks that share a GPU, as if NVLink or PCIe joined two GPUs",
     .kind = choice,
     .must_agree = true,
     .field = &Config::test_only_shared_gpu},
    {.name = "compression",
     .variable = "MCCL_COMPRESSION",
     .range = "none, auto, fp16, bf16, int8, fp8, fp8_e4m3, fp8_e5m2, int4, topk",
     .meaning = "Codec that rounds sums of floats between machines; auto: bf16 for sums of f32 "
                "that it is predicted to make at least a tenth faster",
     .kind = choice,
     .must_agree = true,
     .field = &Config::compression},
    {.name = "topk_ratio",
     .variable = "MCCL_TOPK_RATIO",
     .range = "above 0, to 1",
     .meaning = "Fraction of the elements that compression=topk sends",
     .kind = number,
     .must_agree = true,
     .field = &Config::topk_ratio,
     .minimum = kAboveZero,
     .maximum = 1},
    {.name = "compression_min_bytes",
     .variable = "MCCL_COMPRESSION_MIN_BYTES",
     .range = "0 to 1G",
     .meaning = "Calls with fewer bytes are exact, whatever the codec",
     .kind = bytes,
     .must_agree = true,
     .field = &Config::compression_min_bytes,
     .maximum = kGiB},
    {.name = "shader_path",
     .variable = "MCCL_SHADER_PATH",
     .range = "a path",
     .meaning = "File of Metal shaders (.metal or .metallib); empty: the shaders of the package",
     .only_with = kWithGpu,
     .field = &Config::shader_path},
    {.name = "algorithm",
     .variable = "MCCL_ALGORITHM",
     .range = "auto, direct, ring, ring_both, recursive_doubling, binomial_tree, chain, "
              "pairwise, dissemination, one_shot, two_shot, hierarchical, cable_tree",
     .meaning = "Algorithm for all calls that it supports; auto: chosen by predicted cost",
     .kind = choice,
     .must_agree = true,
     .field = &Config::algorithm},
    {.name = "socket_buffer_bytes",
     .variable = "MCCL_SOCKET_BUFFER_BYTES",
     .range = "4K to 1G, or 0",
     .meaning = "Size of the send and receive buffer of each TCP socket; 0: set by link_profile",
     .kind = bytes,
     .field = &Config::socket_buffer_bytes,
     .minimum = 4 * kKiB,
     .maximum = kGiB},
    {.name = "pinned_limit_bytes",
     .variable = "MCCL_PINNED_LIMIT_BYTES",
     .range = "0 to 1T",
     .meaning = "Pinned host memory kept per GPU for later calls; a call may use more while it "
                "runs. If a process has several groups, the setting of the newest group applies",
     .kind = bytes,
     .field = &Config::pinned_limit_bytes,
     .maximum = 1024.0 * kGiB},
    {.name = "congestion_control",
     .variable = "MCCL_CONGESTION_CONTROL",
     .range = "auto, system, or a name such as cubic",
     .meaning = "Congestion control of TCP links; auto: the system's default, except cubic or reno "
                "instead of bbr, which sometimes pauses a link for 200 ms",
     .field = &Config::congestion_control},
    {.name = "timeout",
     .variable = "MCCL_TIMEOUT",
     .range = "0.001 to 31536000 seconds",
     .meaning = "Seconds that a call may last, unless the call sets its own timeout",
     .kind = number,
     .field = &Config::timeout,
     .minimum = 0.001,
     .maximum = kYear},
    {.name = "connect_timeout",
     .variable = "MCCL_CONNECT_TIMEOUT",
     .range = "0.001 to 31536000 seconds",
     .meaning = "Seconds to wait for the other ranks at start-up, and, after a group is destroyed, "
                "for a rank that does not accept the data still to be sent to it",
     .kind = number,
     .field = &Config::connect_timeout,
     .minimum = 0.001,
     .maximum = kYear},
    {.name = "liveness_interval",
     .variable = "MCCL_LIVENESS_INTERVAL",
     .range = "0.001 to 31536000 seconds",
     .meaning = "Seconds without data from a rank (stopped, or its host or cable lost) after which "
                "the others consider it dead",
     .kind = number,
     .must_agree = true,
     .field = &Config::liveness_interval,
     .minimum = 0.001,
     .maximum = kYear},
    {.name = "spin_us",
     .variable = "MCCL_SPIN_US",
     .range = "0 to 1000000 microseconds",
     .meaning = "Microseconds to poll for data before sleeping",
     .kind = integer,
     .field = &Config::spin_us,
     .maximum = 1e6},
    {.name = "calibrate",
     .variable = "MCCL_CALIBRATE",
     .range = "true, false",
     .meaning = "Measure links and memory when a job starts, for the choice of algorithms",
     .kind = boolean,
     .must_agree = true,
     .field = &Config::calibrate},
    {.name = "link_latency_us",
     .variable = "MCCL_LINK_LATENCY_US",
     .range = "up to 1000000 microseconds, or 0",
     .meaning =
         "Latency of the links between machines, for the choice of algorithms; 0: measure it",
     .kind = number,
     .must_agree = true,
     .field = &Config::link_latency_us,
     .maximum = 1e6},
    {.name = "link_gbit",
     .variable = "MCCL_LINK_GBIT",
     .range = "up to 100000 Gbit/s, or 0",
     .meaning = "Rate of the links between machines, for the choice of algorithms; 0: measure it",
     .kind = number,
     .must_agree = true,
     .field = &Config::link_gbit,
     .maximum = 1e5},
    {.name = "job_key",
     .variable = "MCCL_JOB_KEY",
     .range = "any text",
     .meaning = "Secret shared by the ranks of a job; a process without it cannot join",
     .secret = true,
     .field = &Config::job_key},
    {.name = "require_key",
     .variable = "MCCL_REQUIRE_KEY",
     .range = "auto, 1, 0",
     .meaning = "Whether a job of several ranks needs MCCL_JOB_KEY. auto: it does if the ranks run "
                "on several hosts, as several users or in several containers; 1: it does; 0: it "
                "does not, and any process that reaches rank 0 while ranks start can join",
     .kind = choice,
     .field = &Config::require_key},
    {.name = "encryption",
     .variable = "MCCL_ENCRYPTION",
     .range = "off, on",
     .meaning = "Encrypt all TCP connections between ranks, with TLS 1.3",
     .kind = choice,
     .must_agree = true,
     .field = &Config::encryption},
    {.name = "tls_cert",
     .variable = "MCCL_TLS_CERT",
     .range = "a path",
     .meaning = "PEM file of this rank's certificate; empty: ranks prove the job key instead",
     .only_with = "encryption=on",
     .field = &Config::tls_cert},
    {.name = "tls_key",
     .variable = "MCCL_TLS_KEY",
     .range = "a path",
     .meaning = "PEM file of the certificate's private key",
     .only_with = "encryption=on",
     .field = &Config::tls_key},
    {.name = "tls_ca",
     .variable = "MCCL_TLS_CA",
     .range = "a path",
     .meaning = "PEM file of the authorities that must have signed the other ranks' certificates",
     .only_with = "encryption=on",
     .field = &Config::tls_ca},
    {.name = "rank",
     .variable = "MCCL_RANK",
     .range = "0 to 1048575, or -1 for not set",
     .meaning = "Rank of this process, if no framework provides it",
     .kind = integer,
     .field = &Config::rank,
     .maximum = kMaxRanks - 1},
    {.name = "world_size",
     .variable = "MCCL_WORLD_SIZE",
     .range = "1 to 1048576, or -1 for not set",
     .meaning = "Number of ranks, if no framework provides it",
     .kind = integer,
     .field = &Config::world_size,
     .minimum = 1,
     .maximum = kMaxRanks},
    {.name = "root",
     .variable = "MCCL_ROOT",
     .range = "host:port",
     .meaning = "Address at which rank 0 serves the store through which ranks connect, if no "
                "framework provides it",
     .field = &Config::root},
};

Setting setting_of(const Row& row) {
  Setting setting;
  setting.info.name = row.name;
  setting.info.variable = row.variable;
  setting.info.type = type_name(row.kind);
  setting.info.range = row.range;
  setting.info.meaning = row.meaning;
  setting.info.must_agree = row.must_agree;
  setting.info.secret = row.secret;
  setting.info.only_with = row.only_with;
  setting.kind = row.kind;
  setting.field = row.field;
  setting.minimum = row.minimum;
  setting.maximum = row.maximum;
  setting.given = row.given;
  setting.accepts = row.accepts;
  setting.info.default_value = text_of(Config{}, setting);
  return setting;
}

}  // namespace

std::span<const Setting> setting_table() {
  static const std::vector<Setting> table = [] {
    std::vector<Setting> result;
    for (const Row& row : kRows) result.push_back(setting_of(row));
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
        "{} names a file of settings and is read from the environment only", kConfigFileVariable));
  if (name == kMlxVariable)
    throw InvalidArgument(
        fmt::format("{} is read from the environment only, by Python as it starts; a program calls "
                    "mccl.mlx.install() instead",
                    kMlxVariable));
  const std::string_view prefix = name.starts_with(kVariablePrefix) ? kVariablePrefix : "";
  std::vector<std::string_view> candidates;
  if (!prefix.empty())
    for (const std::string_view variable : {kConfigFileVariable, kMlxVariable})
      candidates.push_back(variable.substr(prefix.size()));
  for (const Setting& setting : table)
    candidates.push_back(prefix.empty() ? setting.info.name
                                        : setting.info.variable.substr(prefix.size()));
  // The comparison ignores the prefix, which all variables have in common.
  const auto nearest = nearest_of(name.substr(prefix.size()), candidates);
  const std::string advice = nearest ? fmt::format("did you mean {}{}?", prefix, *nearest)
                                     : "leave it out; docs/settings.md has a table of all";
  throw InvalidArgument(fmt::format("{} is not a setting; {}", printable(name), advice));
}

}  // namespace mccl
