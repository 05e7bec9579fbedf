// Settings. One typed table (src/base/settings.cpp) drives parsing, validation, the dump at
// start-up and the table in the README; nothing else in the library reads the environment.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mccl/export.h"

namespace mccl {

/// Whether a value was given, which may be the default too. It makes no two Configs differ: what
/// counts is the value.
struct Given {
  bool yes = false;
  friend bool operator==(const Given&, const Given&) { return true; }
};

struct MCCL_API Config {
  std::string backend = "auto";    ///< auto, native, mpi, nccl
  std::string transport = "auto";  ///< auto, tcp, shm, rdma
  std::string rdma_device;         ///< Names, comma-separated; empty: all whose port is active.
  int rdma_port = 1;
  std::string rdma_gid;               ///< An address or a kind of them; empty: what both ends have.
  std::string rdma_service = "auto";  ///< auto, rc, uc
  bool rdma_ring = false;             ///< Of a table of devices, only those of neighbours.
  std::string rdma_uncabled = "relay";  ///< relay, tcp: pairs to which a table names no device.
  std::string log_level = "WARN";       ///< TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF
  std::string listen_addr;   ///< Addresses or host names, comma-separated; empty: found by routing
  std::string link_profile;  ///< empty, ethernet, thunderbolt
  int port_base = 29600;     ///< Rank r listens on port_base + r; 0: any free port
  std::string hostfile;      ///< JSON file with every rank's addresses; empty: a network joins all
  std::string ifname;        ///< Interfaces to use, comma-separated; empty: all
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< Largest message on the wire
  std::size_t small_msg_threshold = 65536;         ///< Bytes below which all_reduce goes direct
  bool transport_crc = false;
  bool fast_math = true;
  std::size_t gpu_threshold = 4096;
  std::string reduce_on = "auto";  ///< auto, cpu, gpu: of floats of 16 bits, on Macs
  bool accelerate = false;         ///< Sums of f32 by macOS's library
  bool force_staging = false;      ///< Also of memory that a Mac's GPU shares with the host
  std::string test_only_shared_gpu = "no";  ///< no, nvlink, pcie: for tests of the GPU kernels
  std::string compression = "none";         ///< A codec (compression.h)
  double topk_ratio = 0.01;
  std::size_t compression_min_bytes = 65536;  ///< Of a call, below which it is exact
  std::string shader_path;
  std::string algorithm = "auto";  ///< auto, or the name of an algorithm for whatever it can do
  std::size_t pinned_limit_bytes = std::size_t{1} << 30;  ///< Kept per GPU when no call uses it.
  std::size_t socket_buffer_bytes = 0;                    ///< 0: by link profile
  std::string congestion_control = "auto";  ///< auto, system, or a name that the system knows
  double timeout = 1800;                    ///< Seconds; default timeout of a call
  double connect_timeout = 60;              ///< Seconds to meet the others, and to wait at the end
  double liveness_interval = 10;            ///< Seconds of silence after which a rank is dead
  int spin_us = 50;                         ///< Microseconds to look for data before sleeping
  bool calibrate = true;                    ///< Measure links and memory when a job starts
  double link_latency_us = 0;               ///< Of a link between machines; 0: measured
  double link_gbit = 0;                     ///< Gbit/s of a link between machines; 0: measured
  std::string job_key;                      ///< Secret that every rank of the job shares
  bool require_key = false;                 ///< Do not start several ranks without a job_key
  int rank = -1;                            ///< For Context::from_environment
  int world_size = -1;
  std::string root;  ///< host:port where rank 0 serves the store
  /// Not a setting of ours: MASTER_PORT, which the listener must leave to torch; 0 when not set.
  int master_port = 0;
  // By set(), the environment or a file. A default that nobody has asked for may give way.
  Given port_base_given;    ///< Else another port does where that one is taken.
  Given chunk_bytes_given;  ///< Else link_profile says.

  /// Defaults, then the file named by MCCL_CONFIG, then MCCL_* variables. Throws InvalidArgument
  /// for an unknown variable (with the nearest name), a value out of range, or a file that is not a
  /// JSON object of known settings.
  static Config from_environment();
  /// The same from a given environment; for tests and launchers.
  static Config from_environment(const std::map<std::string, std::string>& environment);

  /// Sets one setting from text, by its name or its environment variable. Throws InvalidArgument.
  void set(std::string_view name, std::string_view value);
  std::string get(std::string_view name) const;
  /// Every setting by name, as text that set() takes, without those that are not given and may give
  /// way (the fields above): set() would give them.
  std::map<std::string, std::string> texts() const;
  /// Reads a JSON object of settings over what is there. Throws InvalidArgument that names the
  /// file.
  void merge_json(const std::string& text, const std::string& origin);

  friend bool operator==(const Config&, const Config&) = default;
};

struct SettingInfo {
  std::string_view name;      ///< Config field and Python keyword.
  std::string_view variable;  ///< Environment variable.
  std::string_view type;      ///< text, integer, number, bytes, boolean, choice
  std::string default_value;
  std::string_view range;  ///< For people: "0 to 65535", "auto, tcp, shm, rdma".
  std::string_view meaning;
  bool must_agree = false;     ///< Ranks that differ refuse each other.
  bool secret = false;         ///< Never printed.
  std::string_view only_with;  ///< "name=value" of what it says nothing without; else empty.
};

/// The table, in the order in which it is shown.
MCCL_API std::span<const SettingInfo> settings();

/// Throws InvalidArgument where `value` is empty and the setting is a secret: a person who gives a
/// secret means to have one. `name` as for Config::set().
MCCL_API void refuse_empty_secret(std::string_view name, std::string_view value);

/// "name=value" lines of the settings that must agree across ranks.
MCCL_API std::string agreement_of(const Config& config);

/// Every setting as "name = value (variable; meaning)" lines; secrets are masked.
MCCL_API std::string to_table(const Config& config);

/// A warning for each setting that endangers the job: for a job_key that is short enough to be
/// guessed.
MCCL_API std::vector<std::string> warnings_for(const Config& config);

/// The README's table of settings, in Markdown.
MCCL_API std::string settings_markdown();

}  // namespace mccl
