// Settings. One typed table (src/base/settings.cpp) drives parsing, validation, the dump at
// start-up and the table in docs/settings.md. Nothing else in the library reads the environment.
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
#include "mccl/secret.h"

namespace mccl {

/// Whether a setting was set explicitly, even to its default value. All objects of this type
/// compare equal, so that two Configs are equal if the values of their settings are equal.
struct Given {
  bool yes = false;
  friend bool operator==(const Given&, const Given&) { return true; }
};

/// How and where a rank logs. The fields have the values of the settings log_level, log_format,
/// log_file and log_file_bytes.
struct LogOptions {
  std::string level = "WARN";
  std::string format = "text";
  std::string file = {};  ///< Path; empty: standard error.
  std::size_t file_bytes = std::size_t{64} << 20;
};

/// The settings of one process. A plain value: not thread-safe while it is being changed. The valid
/// values are listed in src/base/settings.cpp and in docs/settings.md.
struct MCCL_API Config {
  std::string backend = "auto";    ///< Backend of the calls: auto, native, mpi, nccl, cuda
  std::string transport = "auto";  ///< Transport between ranks: auto, tcp, shm, rdma
  /// Names of RDMA devices, or the path of a JSON table of them; empty: all devices with an active
  /// port.
  std::string rdma_device;
  int rdma_port = 1;
  /// Which GID of an RDMA port to use: an address, or a type such as roce_v2; empty: the best type
  /// that both ranks of a pair have.
  std::string rdma_gid;
  std::string rdma_service = "auto";  ///< Type of the queue pairs: auto, rc, uc
  /// If true, a rank uses only the devices of the table in `rdma_device` that join it to the next
  /// or the previous rank
  bool rdma_ring = false;
  /// How data travels between two ranks for which the table of devices lists no cable: relay, tcp
  std::string rdma_uncabled = "relay";
  /// Lowest level that is logged: TRACE, DEBUG, INFO, WARN, ERROR, FATAL, OFF
  std::string log_level = "WARN";
  std::string log_format = "text";  ///< Format of log lines: text, json
  /// File to which a rank logs; empty: standard error. %r, %h and %p stand for the rank, the host
  /// and the process.
  std::string log_file;
  /// Size in bytes at which a log file is renamed and a new one begins.
  std::size_t log_file_bytes = std::size_t{64} << 20;
  /// Addresses to listen on, comma-separated; empty: all addresses of the interfaces in use, or
  /// loopback if all ranks run on this host
  std::string listen_addr;
  std::string link_profile;  ///< Kind of cable: ethernet, thunderbolt; empty: not specified
  int port_base = 29600;     ///< Rank r listens on port_base + r; 0: any free port
  /// JSON file with the addresses of every rank; empty: every rank must be able to connect to every
  /// other rank directly
  std::string hostfile;
  std::string ifname;  ///< Interfaces to use, comma-separated; empty: all
  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< Maximum bytes of a message on the wire
  /// In a group of at most 8 ranks, no two of which share memory, an all_reduce of fewer bytes than
  /// this uses the algorithm `direct`
  std::size_t small_msg_threshold = 65536;
  /// Whether large messages between ranks of one host, and large buffers of some collectives, are
  /// copied once, directly from the memory of the sending process: auto, on, off. With auto, they
  /// are if that was measured to be faster
  std::string cross_memory = "auto";
  /// If true, memory from Context::allocate() lies where the other ranks of this host can read it
  bool shared_buffers = true;
  bool transport_crc = false;  ///< If true, every message is checked with a CRC-32C
  /// If true, GPU kernels may fuse a multiplication and an addition, and may fail to recognise NaN
  bool fast_math = true;
  /// Arrays with fewer 16-bit floats than this are reduced on the CPU
  std::size_t gpu_threshold = 4096;
  std::string reduce_on =
      "auto";               ///< Processor of a Mac that reduces 16-bit floats: auto, cpu, gpu
  bool accelerate = false;  ///< If true, macOS's Accelerate sums f32
  /// If true, data are copied to the host even if a Mac's GPU shares its memory with the host
  bool force_staging = false;
  /// How calls run if ranks share a GPU; only tests set it. no: through host memory; nvlink, pcie:
  /// by GPU kernels, as if NVLink or PCIe joined two GPUs
  std::string test_only_shared_gpu = "no";
  std::string compression = "none";  ///< Name of a codec (compression.h), or "auto"
  double topk_ratio = 0.01;          ///< Share of the elements that topk sends: (0, 1]
  /// Minimum size, in bytes, of the calls for which the group's codec is used
  std::size_t compression_min_bytes = 65536;
  std::string shader_path;         ///< File of Metal shaders; empty: the shaders of the package
  std::string algorithm = "auto";  ///< Algorithm to use wherever it applies, or auto
  /// Maximum bytes of pinned memory to keep per GPU while no call uses it
  std::size_t pinned_limit_bytes = std::size_t{1} << 30;
  /// Size of a socket's send and receive buffers; 0: the link profile's value, or the system's
  /// default
  std::size_t socket_buffer_bytes = 0;
  /// Congestion control of TCP links: auto, system, or a name known to the system
  std::string congestion_control = "auto";
  double timeout = 1800;  ///< Default timeout of a call, in seconds
  /// Seconds to wait for the other ranks at start-up. Also the seconds after which a destroyed
  /// group drops its unsent data if the receiving rank accepts none of it
  double connect_timeout = 60;
  double liveness_interval = 10;  ///< Seconds without data after which a rank counts as dead
  /// Seconds for which a rank tries to replace a broken connection to a live rank; 0: not at all;
  /// -1: the value of liveness_interval
  double link_retry = -1;
  /// Seconds without progress after which a warning names the ranks that a call waits for; 0: no
  /// warning
  double warn_after = 30;
  /// File or folder to which the flight record is written when a group fails; empty: none. %r, %h
  /// and %p stand for the rank, the host and the process.
  std::string flight_recorder_file;
  /// Signal that also makes a rank write flight_recorder_file: none, USR1, USR2
  std::string flight_recorder_signal = "none";
  /// Rank r serves its metrics over HTTP at the port metrics_port + r; 0: not served
  int metrics_port = 0;
  /// IP address at which metrics_port listens
  std::string metrics_addr = "127.0.0.1";
  int spin_us = 200;               ///< Microseconds for which a caller polls before it sleeps
  bool calibrate = true;           ///< If true, links and memory are measured when a job starts
  double link_latency_us = 0;      ///< Microseconds of latency between machines; 0: measured
  double link_gbit = 0;            ///< Gbit/s of a link between machines; 0: measured
  SecretBytes job_key;             ///< Secret that every rank of the job shares
  std::string encryption = "off";  ///< Whether TCP connections between ranks are encrypted: off, on
  /// Whether the Linux kernel encrypts, where it can: auto, on, off. With auto, it does if the rank
  /// has no core for threads that encrypt
  std::string kernel_tls = "auto";
  /// Path of this rank's certificate; empty: ranks prove that they know the job key instead
  std::string tls_cert;
  std::string tls_key;  ///< Path of the certificate's private key
  /// Path of the certificates of the authorities that signed the ranks' certificates
  std::string tls_ca;
  /// Whether a job of several ranks needs a job_key: auto, 1, 0. With auto, it needs one if the
  /// ranks run on several hosts, as several users or in several containers
  std::string require_key = "auto";
  int rank = -1;        ///< Rank of this process, for Context::from_environment(); -1: not set
  int world_size = -1;  ///< Number of ranks, for Context::from_environment(); -1: not set
  std::string root;     ///< host:port where rank 0 serves the store
  /// Value of the environment variable MASTER_PORT; 0 if it is not set. Torch listens on that port,
  /// so this library must not. MASTER_PORT is not a setting of this library.
  int master_port = 0;
  // Whether set(), the environment or a file has set port_base or chunk_bytes, respectively. A
  // value that differs from the default also counts as set.
  Given port_base_given;    ///< If not set and port_base + r is in use, rank r uses any free port.
  Given chunk_bytes_given;  ///< If not set, link_profile may change chunk_bytes.

  /// Reads the defaults, then the file named by MCCL_CONFIG, then MCCL_* variables. Throws
  /// InvalidArgument if a variable is unknown (the message suggests a similar name), if a value is
  /// out of range, or if the file is not a JSON object of known settings.
  ///
  /// Calls protect_job_key() first.
  static Config from_environment();
  /// Does the same with the variables in `environment`; for tests and launchers.
  static Config from_environment(const std::map<std::string, std::string>& environment);

  /// Sets one setting from text, by its name or its environment variable. Throws InvalidArgument if
  /// the name is unknown or the value is invalid.
  void set(std::string_view name, std::string_view value);
  /// The value of one setting as text; secrets are not masked. Throws InvalidArgument if the name
  /// is unknown.
  std::string get(std::string_view name) const;
  /// Returns the values of all settings, keyed by name, as texts that set() accepts. Leaves out
  /// `port_base` and `chunk_bytes` if they were not set, because set() would mark them as set.
  std::map<std::string, std::string> texts() const;
  /// Sets all settings that a JSON object contains; other settings keep their values. Error
  /// messages refer to the object by `origin`, such as the name of its file. Throws InvalidArgument
  /// on failure; nothing changes then.
  void merge_json(const std::string& text, const std::string& origin);

  friend bool operator==(const Config&, const Config&) = default;
};

/// Moves the value of the environment variable MCCL_JOB_KEY to memory that core dumps leave out,
/// and overwrites the original text, so that neither a core dump nor /proc/PID/environ contains it.
/// getenv and new child processes still find the variable. No-op if the variable is not set or
/// already moved, or without glibc.
///
/// Thread-safe to the same degree as setenv. A pointer that getenv returned earlier stays
/// valid, but its text is empty from then on; call getenv again to read the value. The text
/// becomes empty because ranks that took any other fixed text for the job's key would accept each
/// other.
MCCL_API void protect_job_key();

/// One row of the table of settings.
struct SettingInfo {
  std::string_view name;      ///< Name of the Config field and of the Python keyword.
  std::string_view variable;  ///< Environment variable.
  std::string_view type;      ///< Type of the value: text, integer, number, bytes, boolean, choice
  std::string default_value;
  std::string_view range;  ///< Valid values, for users: "0 to 65535", "auto, tcp, shm, rdma".
  std::string_view meaning;
  bool must_agree = false;  ///< If true, ranks with different values refuse to connect.
  bool secret = false;      ///< True if the value must never be printed.
  /// "name=value" of another setting: only with that value does this setting have an effect. Empty
  /// if the setting always has an effect.
  std::string_view only_with;
};

/// The table of settings, in display order. Valid for the life of the process.
MCCL_API std::span<const SettingInfo> settings();

/// Throws InvalidArgument if `value` is empty and the setting `name` is a secret, because an empty
/// secret is most likely a mistake. `name` is a name that Config::set() accepts.
MCCL_API void refuse_empty_secret(std::string_view name, std::string_view value);

MCCL_API LogOptions log_options(const Config& config);

/// "name=value" lines of the settings that must agree across ranks.
MCCL_API std::string agreement_of(const Config& config);

/// Every setting as "name = value (variable; meaning)" lines; secrets are masked.
MCCL_API std::string to_table(const Config& config);

/// Warnings for settings that endanger the job, such as a job_key short enough to be guessed.
MCCL_API std::vector<std::string> warnings_for(const Config& config);

/// The table of settings for docs/settings.md, in Markdown.
MCCL_API std::string settings_markdown();

}  // namespace mccl
