// Seeds of the targets that stand for hosts, launchers and users of the mccl program.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "schedule/choose.h"
#include "seeds.h"

namespace mccl::fuzz {
namespace {

using nlohmann::json;

void write_replies(const Corpus& corpus) {
  const std::string begin = "Welcome\nTOKEN probe /usr/bin/mccl\n";
  const std::string facts =
      R"({"mccl": "1.0", "protocol": 2, "clock": 1800000000.5}
{"busy": "nvidia-smi"}
{"told": {"system": "Linux", "os": "Debian 12", "cores": 8, "memory_gib": 31.2,
"interfaces": [{"name": "eth0", "kind": "cable", "up": true, "addresses": ["10.0.0.1/24"]}]}}
)";
  std::string on_one_line = facts;
  for (std::size_t at = on_one_line.find(",\n"); at != std::string::npos;
       at = on_one_line.find(",\n"))
    on_one_line.replace(at, 2, ", ");
  corpus.add("facts", begin + on_one_line);
  corpus.add("missing", "TOKEN none\n");
  corpus.add("another_build", begin + R"({"protocol": 3})"
                                      "\n"
                                      R"({"told": {}})"
                                      "\n");
  corpus.add("noise", begin + "Segmentation fault\n[1]\n{\"told\": 7}\n");
  corpus.add("ports",
             begin + R"({"listening": {"ports": [29680, 32380], "packets": 5, "calls": true}})");
  corpus.add("bad_ports",
             begin + R"({"listening": {"ports": [0, -1, 70000, 1.5], "packets": "x"}})");
  corpus.add("calls", begin + R"({"heard": {"at": "c0", "name": 2, "from": "c1"}}
{"unanswered": {"at": "c0", "name": 0, "from": "c1"}}
{"heard": {"at": "c0", "name": 3, "from": "c1"}}
{"called": true})");
  corpus.add("tests", begin + R"({"dialled": {"id": 1, "good": false, "why": "Connection refused"}}
{"dialled": {"id": 0, "good": true, "why": ""}}
{"timed": {"id": 3, "latency_s": 2e-5, "bytes_per_s": 1e9}}
{"timed": {"id": 4, "latency_s": "x"}}
{"dialled": {"id": -1}})");
  const std::string rows =
      R"([{"collective": "all_reduce", "bytes": 8, "time_us": 5, "busbw": 0.1, "wrong": 0},)"
      R"({"collective": "barrier", "bytes": null},)"
      R"({"collective": "all_reduce", "bytes": 16777216, "time_us": 90, "busbw": 9, "wrong": 1}])";
  const auto trial = [](const std::string& result) {
    return "\n===\n[0] starting\n[0] mccl-selftest-result\n[0] " + result + "\n[1] done\n";
  };
  corpus.add("trial", trial(R"({"transport": "tcp", "bounds": {"tcp_one_way_gbs": 5}, "rows": )" +
                            rows + "}"));
  corpus.add("trial_of_shm",
             trial(R"({"transport": "shm", "bounds": {"pass_all_gbs": 5}, "rows": )" + rows + "}"));
  corpus.add("odd_trial", trial(R"({"transport": 7, "bounds": [], "rows": {"a": 1}})"));
  corpus.add("odd_rows", trial(R"({"rows": [1, null, {"collective": 7, "bytes": "x"}, []]})"));
  corpus.add("cut_trial", trial(R"({"rows": [)"));
}

void write_probe(const Corpus& corpus) {
  constexpr int kProves = 0x80;
  const auto add = [&](std::string_view name, int kind, std::string_view text) {
    corpus.add(name, one(kind) + raw(text));
  };
  add("hello", kProves, "0123456789abcdef hello");
  add("echo", kProves, "n echo");
  add("another_purpose", kProves, "n steal");
  add("no_proof", 0, "n count 0123456789abcdef\n");
  add("http", 0, "GET / HTTP/1.1\r\n\r\n");
  add("greeting", 1, "mccl 0123456789abcdef");
  add("another_greeting", 1, "SSH-2.0-OpenSSH_9.2");
  add("test_packet", 2 + kProves, "0123 1500");
  add("call", 2 + kProves, "call 0123 7 en2");
  add("who", 2 + kProves, "who 0123 4567");
  add("here", 2 + kProves, "here 4567 7 en2");
  add("forged_here", 2, "here 4567 7 en2 0123");
  add("tell", 3, R"({"do": "tell", "python": "/usr/bin/python3", "patience": 30})");
  add("listen", 3, R"({"do": "listen", "key": "0123456789abcdef"})");
  add("listen_short", 3, R"({"do": "listen", "key": "0123"})");
  add("ask_to_call", 3, R"({"do": "call", "name": 1})");
  add("dial", 3, R"({"do": "dial", "id": 1, "to": "10.0.0.1", "port": 29680, "from": "fe80::1"})");
  add("packet", 3, R"({"do": "packet", "id": 1, "to": "10.0.0.1", "port": 1, "bytes": 9000})");
  add("time", 3, R"({"do": "time", "id": 1, "to": "fd00::1", "port": 1, "seconds": 0.25})");
  add("no_request", 3, R"({"do": "leave"})");
}

void write_launch(const Corpus& corpus) {
  const auto add = [&](std::string_view name, int piece, std::string_view text) {
    corpus.add(name, one(piece - 1) + raw(text));
  };
  const std::string_view rank = "motd\nmccl-0123 begin\nstep 1\nhalf a line mccl-0123 exit 0\n";
  add("rank", 200, rank);
  add("rank_in_pieces", 5, rank);
  add("crlf", 7, "mccl-0123 begin\r\nx\r\nmccl-0123 exit 139\r\n");
  add("never_begins", 9, "bash: no such file\n");
  add("like_a_word", 3, "mccl-0123 begin\nmccl-0123 exit x\nmccl-012mccl-0123 exi\nmccl-01");
  add("long_word", 8, "mccl-0123 begin\nmccl-0123 exit 0000000000000000000003\n");
  add("utf8", 4, "h\xc3\xa4lf \xe2\x82\xac \xf0\x9f\x98\x80 \xff\n\xe2\x82");
  add("guard", 64,
      "folder /tmp/mccl-launch.1\nfrom 10.0.0.9 51000 10.0.0.1 22\n"
      "cores /usr/bin/taskset 0-3,8 0:0:0 1:0:0 2:0:1 3:0:1 8:1:0\n"
      "taken 7FFF\ntaken zz\nmccl /usr/bin/mccl\nno-directory 0\nno-program 0\nno-script 0\n"
      "no-script 1\nchecked\n");
  add("full", 64, "no-folder /tmp\nfull /tmp/mccl-launch.1\ncores t 0-99999 1:2\n");
}

void write_plans(const Corpus& corpus) {
  json costs;
  for (const schedule::FactInfo& info : schedule::fact_table())
    costs[std::string(info.name)] = schedule::value_of(schedule::Facts(), info);
  costs["nodes"] = {0, 0};
  const json rows = {{{"collective", "all_reduce"},
                      {"bytes", 1 << 20},
                      {"dtype", "f32"},
                      {"op", "sum"},
                      {"in_place", true},
                      {"time_us", 100},
                      {"p50_us", 90}},
                     {{"collective", "barrier"}, {"bytes", 0}, {"time_us", 1}, {"p50_us", 1}},
                     {{"collective", "broadcast"},
                      {"bytes", 8},
                      {"dtype", "u8"},
                      {"root", 1},
                      {"in_place", false},
                      {"time_us", 1},
                      {"p50_us", 1}}};
  const json whole = {
      {"ranks", 2}, {"transport", "shm"}, {"algorithm", "auto"}, {"costs", costs}, {"rows", rows}};
  corpus.add("run", one(0) + raw(whole.dump()));
  corpus.add("forced", one(0) + raw(R"({"ranks": 2, "transport": "tcp", "algorithm": "ring"})"));
  const auto links = [&](std::string_view name, int ranks, std::string_view text) {
    corpus.add(name, one(1 + 2 * (ranks - 1)) + raw(text));
  };
  links("ring", 3, R"([{"between": [0, 1], "rate": "10Gbit"}, {"between": [1, 2]},
 {"between": [2, 0], "latency": "20us"}])");
  links("parts", 4, R"([{"between": [0, 1]}, {"between": [3, 2]}])");
  links("odd_cables", 2, R"([{"between": [0, 0]}, {"between": [0, 1e300]}, {"between": 1}])");
  links("no_list", 2, R"({"between": [0, 1]})");
}

void write_placements(const Corpus& corpus) {
  corpus.add("torchrun",
             "RANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nMASTER_ADDR=fe80::1\nMASTER_PORT=29500\n");
  corpus.add("open_mpi",
             "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=0\n"
             "OMPI_COMM_WORLD_LOCAL_SIZE=2\nPMIX_NAMESPACE=prte-1\n");
  corpus.add("mpich", "PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2\nPMI_FD=7\n");
  corpus.add("slurm",
             "SLURM_PROCID=3\nSLURM_STEP_NUM_TASKS=4\nSLURM_LOCALID=1\nSLURM_STEP_ID=0\n"
             "SLURM_JOB_ID=17\nSLURM_STEP_NODELIST=n[08-09]\nSLURM_JOB_NODELIST=n[08-09],m\n"
             "SLURM_TASKS_PER_NODE=4(x2),3\n");
  corpus.add("mlx", "MLX_RANK=0\nMLX_WORLD_SIZE=2\nNCCL_HOST_IP=10.0.0.1\nNCCL_PORT=2000\n");
  corpus.add("half", "RANK=1\nPMI_RANK=1\n");
  corpus.add("outside", "RANK=4\nWORLD_SIZE=4\nMASTER_ADDR=a\nMASTER_PORT=1\n");
  corpus.add("tasks", "SLURM_JOB_NODELIST=n\nSLURM_TASKS_PER_NODE=4(x\n");
}

}  // namespace

void write_seeds_of_programs(const std::filesystem::path& root) {
  write_replies({root, "host_replies"});
  write_probe({root, "probe_words"});
  write_launch({root, "launch_words"});
  write_plans({root, "plan"});
  write_placements({root, "placement"});
}

}  // namespace mccl::fuzz
