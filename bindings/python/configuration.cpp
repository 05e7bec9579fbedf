// Gives Python access to the settings. They are passed as dictionaries of text, which the library's
// table of settings checks.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "mccl/config.h"
#include "mccl/host.h"
#include "mccl/meeting.h"

namespace mccl::python {

namespace nb = nanobind;

namespace {

using TextMap = std::map<std::string, std::string>;

Config config_of(const TextMap& values) {
  Config config;
  for (const auto& [name, value] : values) config.set(name, value);
  return config;
}

nb::list setting_rows() {
  nb::list rows;
  for (const SettingInfo& info : settings()) {
    nb::dict row;
    row["name"] = info.name;
    row["variable"] = info.variable;
    row["type"] = info.type;
    row["default"] = info.default_value;
    row["range"] = info.range;
    row["meaning"] = info.meaning;
    row["must_agree"] = info.must_agree;
    row["secret"] = info.secret;
    row["only_with"] = info.only_with;
    rows.append(row);
  }
  return rows;
}

TextMap config_from_environment(const TextMap& environment) {
  protect_job_key();
  return Config::from_environment(environment).texts();
}

TextMap config_from_dict(const TextMap& base, const TextMap& changes) {
  Config config = config_of(base);
  for (const auto& [name, value] : changes) {
    refuse_empty_secret(name, value);
    config.set(name, value);
  }
  return config.texts();
}

/// Prefixes of the variables that may describe a job: those of MCCL, of MLX and of launchers.
constexpr std::string_view kOfJobs[] = {"MCCL_",  "MLX_",        "JACCL_",      "NCCL_",   "RANK=",
                                        "SLURM_", "WORLD_SIZE=", "LOCAL_RANK=", "MASTER_", "OMPI_",
                                        "PMIX_",  "PMI_",        "MPI_"};

std::uint64_t job_fingerprint() { return environment_fingerprint(kOfJobs); }

/// Rank, size, local rank and launcher of this process, from a launcher or the settings; None if
/// neither provides them.
nb::object placement(const TextMap& values, const TextMap& environment) {
  const auto found = find_placement(config_of(values), environment);
  if (!found) return nb::none();
  nb::dict fields;
  fields["rank"] = found->rank;
  fields["size"] = found->size;
  fields["local_rank"] = found->local_rank;
  fields["found_by"] = found->found_by;
  return fields;
}

/// Meeting point of the ranks, as host:port of rank 0; empty if there is none.
std::string meeting_point(const TextMap& values, const TextMap& environment) {
  const Config config = config_of(values);
  const auto found = find_placement(config, environment);
  if (!found) return {};
  const nb::gil_scoped_release without_gil;
  return rendezvous::meeting_point(*found, config);
}

void log_line(const TextMap& values, int rank, std::string_view text) {
  log_info(rank, text, log_options(config_of(values)));
}

/// True if an RDMA device of this machine has an active port.
bool has_rdma(const TextMap& values) {
  Config config;
  if (const auto port = values.find("rdma_port"); port != values.end())
    config.set("rdma_port", port->second);
  return has_active_rdma(config);
}

}  // namespace

void bind_configuration(nb::module_& module) {
  using nb::literals::operator""_a;
  module.def("settings", &setting_rows,
             "The rows of the table of settings, in the order of the table.");
  module.def("settings_markdown", &settings_markdown, "The table of settings in Markdown.");
  module.def("config_from_environment", &config_from_environment, "environment"_a,
             "The settings, from the defaults, the file of MCCL_CONFIG and the MCCL_* variables. "
             "Omits a setting if nothing sets it and MCCL may replace its default by a better "
             "value, as for the port.");
  module.def("config_from_dict", &config_from_dict, "base"_a, "changes"_a,
             "Every setting, from the defaults, overridden by `base` and then `changes`. An empty "
             "secret in `changes` is refused.");
  module.def(
      "placement", &placement, "values"_a, "environment"_a,
      "A process's rank, the number of ranks, the process's rank on its host (-1 if no "
      "launcher provides it) and the launcher's name, from settings and an environment. None "
      "if these set no rank.");
  module.def("meeting_point", &meeting_point, "values"_a, "environment"_a,
             "host:port of rank 0, where the ranks meet; empty if there is none. If MPICH's "
             "launcher provides it, blocks until all ranks ask for it, and works only once.");
  module.def("log_info", &log_line, "values"_a, "rank"_a, "text"_a,
             "Logs a line at INFO, if the settings enable that level.");
  module.def(
      "check_device_table", &check_device_table, "path"_a, "ring"_a,
      "Reads a table of RDMA devices, in the format of MLX_IBV_DEVICES, and returns its number of "
      "ranks. The table must connect every pair of ranks, or the ranks in a ring; with `ring`, "
      "only "
      "a ring is accepted.");
  module.def("has_active_rdma", &has_rdma, "values"_a,
             "Whether an RDMA device of this machine has an active port.");
  module.def("has_mpi", &has_mpi, "environment"_a,
             "Whether an MPI library that matches the launcher of this process can be loaded.");
  module.def("own_addresses", &own_addresses,
             "The addresses of this machine's interfaces that are up, loopback last.");
  module.def("job_fingerprint", &job_fingerprint,
             "A hash of the variables that may describe a job to this process; it changes when "
             "they change.");
  module.def(
      "config_table", [](const TextMap& values) { return to_table(config_of(values)); }, "values"_a,
      "The settings as the log shows them; secrets are masked.");
  module.def(
      "config_warnings", [](const TextMap& values) { return warnings_for(config_of(values)); },
      "values"_a, "One warning for each setting whose value is unsafe or has no effect.");
}

}  // namespace mccl::python
