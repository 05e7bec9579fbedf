// Tests the plan of a job: ranks, environments, files and remote scripts. Also tests which of
// several failures the launcher reports as the cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cli/kit/ssh.h"
#include "cli/launch/failure.h"
#include "cli/launch/job.h"
#include "cli/launch/mpi.h"
#include "cli/launch/remote_script.h"
#include "cli/launch/resources.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

JobRequest request_for(const std::string& hosts, std::optional<int> ranks) {
  JobRequest request;
  request.program = {"./program", "-x"};
  request.hosts = parse_hosts("--hosts", hosts);
  request.ranks_per_host = ranks;
  request.directory = "/work";
  return request;
}

const std::vector<ReachedHost> kPlaces = {{"10.0.0.1", "/tmp/a"}, {"fd77::2", "/tmp/b"}};

TEST(LaunchJob, RanksFollowTheHosts) {
  const Job job = plan_job(request_for("a,b,a", 2), "key");
  ASSERT_EQ(job.size(), 6);
  EXPECT_EQ(job.hosts.size(), 2U);
  EXPECT_EQ(job.ranks[5].host, 0U);
  EXPECT_EQ(job.ranks[5].local_rank, 3);
  EXPECT_EQ(job.ranks_on(0).size(), 4U);
  EXPECT_FALSE(job.all_here());
}

TEST(LaunchJob, SlotsGiveTheNumberOfRanksWithoutAFlag) {
  JobRequest request = request_for("a,b", {});
  request.hosts[0].slots = 3;
  EXPECT_EQ(plan_job(request, "key").size(), 4);
  request.ranks_per_host = 2;
  EXPECT_EQ(plan_job(request, "key").size(), 4);
  request.ranks_per_host = 4096;
  EXPECT_THROW(plan_job(request, "key"), InvalidArgument);
}

TEST(LaunchJob, AScriptRunsWithThePythonOfItsHost) {
  JobRequest request = request_for("a,b", {});
  request.program = {"train.py", "x"};
  request.python = "/here/python";
  request.hosts[1].python = "/there/python";
  const Job job = plan_job(request, "key");
  EXPECT_THAT(job.ranks[0].argv, ElementsAre("/here/python", "train.py", "x"));
  EXPECT_THAT(job.ranks[1].argv, ElementsAre("/there/python", "train.py", "x"));
}

TEST(LaunchJob, TheWordPythonMeansTheInterpreterOfScripts) {
  JobRequest request = request_for("a,b", {});
  request.program = {"python", "-m", "train"};
  request.python = "/here/python";
  request.hosts[1].python = "/there/python";
  const Job job = plan_job(request, "key");
  EXPECT_THAT(job.ranks[0].argv, ElementsAre("/here/python", "-m", "train"));
  EXPECT_THAT(job.ranks[1].argv, ElementsAre("/there/python", "-m", "train"));
  request.program = {"/own/python", "x.py"};
  EXPECT_THAT(plan_job(request, "key").ranks[0].argv, ElementsAre("/own/python", "x.py"));
}

TEST(LaunchJob, PassesPythonsFlagsToPython) {
  const auto argv = [](std::vector<std::string> program) {
    JobRequest request = request_for("a", {});
    request.program = std::move(program);
    request.python = "/here/python";
    return plan_job(request, "key").ranks[0].argv;
  };
  EXPECT_THAT(argv({"-m", "mlx_lm"}), ElementsAre("/here/python", "-m", "mlx_lm"));
  EXPECT_THAT(argv({"-u", "x.py"}), ElementsAre("/here/python", "-u", "x.py"));
  EXPECT_THAT(argv({"python3", "-u", "x.py"}), ElementsAre("/here/python", "-u", "x.py"));
  EXPECT_THAT(argv({"/o/python3.11", "x.py"}), ElementsAre("/o/python3.11", "x.py"));
}

TEST(LaunchJob, FindsTheScriptAtAnyPosition) {
  const auto script = [](std::vector<std::string> argv) {
    const RankPlan rank{.argv = std::move(argv), .directory = ""};
    const std::string* found = script_of(rank);
    return found == nullptr ? std::string() : *found;
  };
  EXPECT_EQ(script({"python", "x.py", "y.py"}), "x.py");
  EXPECT_EQ(script({"python", "-c", "x.py"}), "");
  EXPECT_EQ(script({"program"}), "");
}

TEST(LaunchJob, SetsTheVariablesOfEveryFramework) {
  JobRequest request = request_for("a,b", 2);
  request.environment = {{"A", "1"}, {"B", "1"}};
  request.hosts[1].environment = {{"B", "2"}};
  request.hosts[1].addresses = {"10.0.0.2", "10.1.0.2"};
  const Job job = plan_job(request, "the key");
  const Ports ports = ports_from(job, 32323);
  const Variables inherited = {{"MCCL_LOG_LEVEL", "INFO"}, {"MCCL_RANK", "99"}, {"HOME", "/root"}};
  const Variables third = environment_of(job, job.ranks[3], ports, kPlaces, inherited);
  const Variables expected = {{"MCCL_RANK", "3"},
                              {"MCCL_WORLD_SIZE", "4"},
                              {"MCCL_ROOT", "10.0.0.1:32321"},
                              {"MCCL_JOB_KEY", "the key"},
                              {"MCCL_LISTEN_ADDR", "10.0.0.2,10.1.0.2"},
                              {"MCCL_HOSTFILE", "/tmp/b/hostfile.json"},
                              {"MCCL_LOG_LEVEL", "INFO"},
                              {"MLX_RANK", "3"},
                              {"MLX_HOSTFILE", "/tmp/b/hostfile.json"},
                              {"_MCCL_LAUNCH", "/tmp/b/"},
                              {"RANK", "3"},
                              {"LOCAL_RANK", "1"},
                              {"GROUP_RANK", "1"},
                              {"TORCHELASTIC_RESTART_COUNT", "0"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "32322"},
                              {"PYTHONUNBUFFERED", "1"},
                              {"A", "1"},
                              {"B", "2"}};
  EXPECT_EQ(third, expected);
}

TEST(LaunchJob, WritesTheRingFileOfMlx) {
  JobRequest request = request_for("a,b", {});
  request.hosts[0].addresses = {"10.0.0.1", "10.1.0.1"};
  request.connections_per_address = 2;
  const Job job = plan_job(request, "key");
  EXPECT_EQ(ring_file(job, ports_from(job, 100), kPlaces),
            R"([["10.0.0.1:100","10.0.0.1:101","10.1.0.1:102","10.1.0.1:103"],)"
            R"(["[fd77::2]:104","[fd77::2]:105"]])");
  EXPECT_EQ(devices_file(job), "");
  EXPECT_THROW(ports_from(job, 65535), InvalidArgument);
  EXPECT_THROW(ports_from(job, 2), InvalidArgument);
}

/// Returns the names of the variables for MLX and its backends, in order.
std::vector<std::string> names_for_mlx(const Variables& variables) {
  std::vector<std::string> names;
  for (const auto& [name, value] : variables)
    if (name.starts_with("MLX_") || name.starts_with("NCCL_") || name.starts_with("CUDA_"))
      names.push_back(name);
  return names;
}

Variables variables_with(Backend backend, int ranks, bool verbose = false,
                         const Variables& inherited = {}) {
  JobRequest request = request_for("a,b", {});
  request.hosts.resize(static_cast<std::size_t>(ranks), request.hosts[0]);
  for (Host& host : request.hosts) host.rdma = nlohmann::json(request.hosts.size(), nullptr);
  request.backend = backend;
  request.verbose = verbose;
  const Job job = plan_job(request, "key");
  return environment_of(job, job.ranks.back(), ports_from(job, 100), kPlaces, inherited);
}

TEST(LaunchJob, SetsTheVariablesOfOneMlxBackendOnly) {
  const auto ring = ElementsAre("MLX_HOSTFILE", "MLX_RANK");
  EXPECT_THAT(names_for_mlx(variables_with(Backend::any, 2)), ring);
  EXPECT_THAT(names_for_mlx(variables_with(Backend::ring, 2)), ring);
  EXPECT_THAT(names_for_mlx(variables_with(Backend::jaccl, 2)),
              ElementsAre("MLX_IBV_DEVICES", "MLX_JACCL_COORDINATOR", "MLX_RANK"));
  EXPECT_THAT(
      names_for_mlx(variables_with(Backend::jaccl_ring, 2)),
      ElementsAre("MLX_IBV_DEVICES", "MLX_JACCL_COORDINATOR", "MLX_JACCL_RING", "MLX_RANK"));
  EXPECT_THAT(names_for_mlx(variables_with(Backend::nccl, 2)),
              ElementsAre("CUDA_VISIBLE_DEVICES", "MLX_RANK", "MLX_WORLD_SIZE", "NCCL_HOST_IP",
                          "NCCL_PORT"));
  EXPECT_THAT(names_for_mlx(variables_with(Backend::mpi, 2)), ElementsAre());
}

TEST(LaunchJob, ANestedLauncherDoesNotPassOnItsRank) {
  const Variables inherited = {{"MLX_HOSTFILE", "/outer"},
                               {"MLX_RANK", "7"},
                               {"NCCL_PORT", "1"},
                               {"MLX_WORLD_SIZE", "9"},
                               {"MLX_METAL_FAST_SYNCH", "1"}};
  const Variables inner = variables_with(Backend::jaccl, 2, false, inherited);
  EXPECT_FALSE(inner.contains("MLX_HOSTFILE"));
  EXPECT_FALSE(inner.contains("NCCL_PORT"));
  EXPECT_EQ(inner.at("MLX_RANK"), "1");
  EXPECT_EQ(inner.at("MLX_METAL_FAST_SYNCH"), "1");
}

TEST(LaunchJob, ANestedLauncherDoesNotPassOnItsDeviceTable) {
  Variables inherited = {{kMark, "/outer/"},
                         {"MCCL_RDMA_DEVICE", "/outer/devices.json"},
                         {"MCCL_RDMA_RING", "1"},
                         {"MCCL_HOSTFILE", "/outer/hostfile.json"},
                         {"MCCL_TIMEOUT", "7"}};
  const Variables inner = variables_with(Backend::any, 2, false, inherited);
  for (const char* name : {"MCCL_RDMA_DEVICE", "MCCL_RDMA_RING", "MCCL_HOSTFILE"})
    EXPECT_FALSE(inner.contains(name)) << name;
  EXPECT_EQ(inner.at("MCCL_TIMEOUT"), "7");
  inherited["MCCL_RDMA_DEVICE"] = "/my/devices.json";
  EXPECT_EQ(variables_with(Backend::any, 2, false, inherited).at("MCCL_RDMA_RING"), "1");
}

/// torch and C++ programs use only MCCL's variables.
TEST(LaunchJob, EveryProgramGetsTheDeviceTable) {
  const Variables inherited = {{"MCCL_RDMA_DEVICE", "roce7"}};
  const Variables mesh = variables_with(Backend::jaccl, 2, false, inherited);
  EXPECT_EQ(mesh.at("MCCL_RDMA_DEVICE"), mesh.at("MLX_IBV_DEVICES"));
  EXPECT_FALSE(mesh.contains("MCCL_RDMA_RING"));
  const Variables ring = variables_with(Backend::jaccl_ring, 2);
  EXPECT_EQ(ring.at("MCCL_RDMA_DEVICE"), ring.at("MLX_IBV_DEVICES"));
  EXPECT_EQ(ring.at("MCCL_RDMA_RING"), "1");
  EXPECT_EQ(variables_with(Backend::ring, 2, false, inherited).at("MCCL_RDMA_DEVICE"), "roce7");
  EXPECT_FALSE(variables_with(Backend::jaccl, 1).contains("MCCL_RDMA_DEVICE"));
}

/// With one rank, MLX's ring and jaccl would wait for a second rank or fail.
TEST(LaunchJob, MlxRunsASingleRankWithoutABackend) {
  for (const Backend backend : {Backend::any, Backend::ring, Backend::jaccl})
    EXPECT_THAT(names_for_mlx(variables_with(backend, 1)), ElementsAre());
  EXPECT_EQ(variables_with(Backend::any, 1).at("MCCL_WORLD_SIZE"), "1");
}

TEST(LaunchJob, VerboseAlsoAppliesToMlx) {
  EXPECT_EQ(variables_with(Backend::ring, 2, true).at("MLX_RING_VERBOSE"), "1");
  EXPECT_EQ(variables_with(Backend::nccl, 2, true).at("NCCL_DEBUG"), "INFO");
  EXPECT_FALSE(variables_with(Backend::ring, 2).contains("MLX_RING_VERBOSE"));
}

TEST(LaunchJob, DevicesGoToEveryPairOfRanks) {
  JobRequest request = request_for("a,b", 2);
  request.backend = Backend::jaccl_ring;
  request.hosts[0].rdma = {nullptr, "r0"};
  request.hosts[1].rdma = {"r1", nullptr};
  const Job job = plan_job(request, "key");
  EXPECT_EQ(devices_file(job), R"([[null,null,"r0","r0"],[null,null,"r0","r0"],)"
                               R"(["r1","r1",null,null],["r1","r1",null,null]])");
  const Variables first = environment_of(job, job.ranks[0], ports_from(job, 100), kPlaces, {});
  EXPECT_EQ(first.at("MLX_JACCL_COORDINATOR"), "10.0.0.1:100");
  EXPECT_EQ(first.at("MLX_IBV_DEVICES"), "/tmp/a/devices.json");
  EXPECT_EQ(first.at("MLX_JACCL_RING"), "1");
}

TEST(LaunchJob, AHostNamedTwiceKeepsTheSettingsOfEachEntry) {
  JobRequest request = request_for("a,b,a", {});
  request.hosts[0].addresses = {"10.0.0.1"};
  request.hosts[2].addresses = {"10.0.0.9"};
  request.hosts[2].environment = {{"WHO", "third"}};
  request.hosts[2].python = "/third/python";
  request.program = {"x.py"};
  request.python = "/python";
  for (Host& host : request.hosts) host.rdma = nlohmann::json::array();
  request.hosts[0].rdma = {nullptr, "ab", "ac"};
  request.hosts[1].rdma = {"ba", nullptr, "bc"};
  request.hosts[2].rdma = {"ca", "cb", nullptr};
  const Job job = plan_job(request, "key");
  ASSERT_EQ(job.hosts.size(), 2U);
  const Ports ports = ports_from(job, 100);
  EXPECT_EQ(ring_file(job, ports, kPlaces),
            R"([["10.0.0.1:100"],["[fd77::2]:101"],["10.0.0.9:102"]])");
  EXPECT_EQ(devices_file(job), R"([[null,"ab","ac"],["ba",null,"bc"],["ca","cb",null]])");
  const Variables third = environment_of(job, job.ranks[2], ports, kPlaces, {});
  EXPECT_EQ(third.at("MCCL_LISTEN_ADDR"), "10.0.0.9");
  EXPECT_EQ(third.at("WHO"), "third");
  EXPECT_EQ(third.at("LOCAL_RANK"), "1");
  EXPECT_EQ(job.ranks[2].argv.front(), "/third/python");
  EXPECT_EQ(job.ranks[0].argv.front(), "/python");
}

TEST(LaunchJob, ThisMachineIsOneByAnyOfItsNames) {
  const Job job = plan_job(request_for("127.0.0.1,localhost,::1", {}), "key");
  EXPECT_EQ(job.hosts.size(), 1U);
  EXPECT_EQ(job.ranks[2].local_rank, 2);
}

TEST(LaunchJob, AnAddressGivenTwiceHasTwoLinks) {
  JobRequest request = request_for("a,b", {});
  request.hosts[0].addresses = {"10.0.0.1", "10.0.0.1"};
  const Job job = plan_job(request, "key");
  const Ports ports = ports_from(job, 100);
  EXPECT_THAT(ring_file(job, ports, kPlaces), HasSubstr(R"(["10.0.0.1:100","10.0.0.1:101"])"));
  EXPECT_EQ(environment_of(job, job.ranks[0], ports, kPlaces, {}).at("MCCL_LISTEN_ADDR"),
            "10.0.0.1,10.0.0.1");
}

TEST(LaunchJob, OnlyNcclGetsADeviceForEachRank) {
  JobRequest request = request_for("127.0.0.1", 2);
  Job job = plan_job(request, "key");
  EXPECT_FALSE(environment_of(job, job.ranks[1], ports_from(job, 100), kPlaces, {})
                   .contains("CUDA_VISIBLE_DEVICES"));
  request.backend = Backend::nccl;
  job = plan_job(request, "key");
  const auto device = [&](const Variables& inherited) {
    return environment_of(job, job.ranks[1], ports_from(job, 100), kPlaces, inherited)
        .at("CUDA_VISIBLE_DEVICES");
  };
  EXPECT_EQ(device({}), "1");
  EXPECT_EQ(device({{"CUDA_VISIBLE_DEVICES", "4,6"}}), "6");
}

TEST(LaunchJob, ADryRunShowsEverythingButTheKey) {
  JobRequest request = request_for("a", 1);
  request.program = {"./my program", "it's"};
  const Job job = plan_job(request, "topsecret");
  const std::string text = text_of(job, choose_ports(job, {}, {}), expected_places(job), {}, true);
  EXPECT_THAT(text, HasSubstr("# rank 0 of 1, on a, by ssh"));
  EXPECT_THAT(text, HasSubstr("cd /work &&"));
  EXPECT_THAT(text, HasSubstr("'./my program' 'it'\\''s'"));
  EXPECT_THAT(text, HasSubstr("MCCL_RANK=0"));
  EXPECT_THAT(text, Not(HasSubstr("topsecret")));
}

TEST(LaunchRemote, NothingButATokenIsOnACommandLine) {
  const std::string command = guard_command("token");
  EXPECT_EQ(std::ranges::count(command, '\''), 2);
  EXPECT_EQ(command.find('\n'), std::string::npos);
  EXPECT_EQ(command.find('!'), std::string::npos);
  EXPECT_EQ(rank_command("/tmp/it is", 3, 0), "exec sh '/tmp/it is/rank.3'");
  EXPECT_EQ(rank_command("/t", 3, 2), "exec sh /t/rank.3 2");
  const Job job = plan_job(request_for("a", 1), "topsecret");
  const auto words = ssh_words(job.hosts[0], SshRole::session, "/s", std::chrono::seconds(18),
                               {"-v"}, rank_command("/t", 0, 0));
  for (const std::string& word : words) EXPECT_EQ(word.find("topsecret"), std::string::npos);
  EXPECT_THAT(words, ::testing::Contains("BatchMode=yes"));
}

TEST(LaunchRemote, ErrorsOfSshComeWithARemedy) {
  const Host host = parse_host("", "me@a");
  EXPECT_THAT(explain_ssh(host, "me@a: Permission denied (publickey).\r\n"),
              HasSubstr("ssh-copy-id me@a"));
  EXPECT_THAT(explain_ssh(host, "Host key verification failed.\n"), HasSubstr("ssh me@a"));
  EXPECT_THAT(explain_ssh(host,
                          "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key "
                          "verification failed.\n"),
              HasSubstr("ssh-keygen -R a "));
  EXPECT_THAT(explain_ssh(host, "connect to host a port 22: Connection refused"),
              HasSubstr("sshd"));
  EXPECT_THAT(explain_ssh(host, "connect to host a: Connection timed out"), HasSubstr("reached"));
  EXPECT_THAT(explain_ssh(host, "ssh: Could not resolve hostname a: Name or service not known"),
              HasSubstr("(ssh: Could not resolve"));
  EXPECT_THAT(explain_ssh(host, "something new\x1b"), HasSubstr("something new\\x1b"));
  EXPECT_THAT(explain_ssh(host, ""), HasSubstr("ssh me@a"));
  const Host other = parse_host("", "me@b:2222");
  EXPECT_THAT(explain_ssh(other, "REMOTE HOST IDENTIFICATION HAS CHANGED!"),
              HasSubstr("ssh-keygen -R '[b]:2222' "));
  EXPECT_THAT(explain_ssh(other, "Host key verification failed."), HasSubstr("ssh -p 2222 me@b "));
  EXPECT_THAT(explain_ssh(other, "Connection refused"), HasSubstr("give the host as me@b:PORT"));
}

TEST(LaunchRemote, AddressesThatAHostReportsAreEscaped) {
  GuardReport report;
  report.take("from", "10.0.0.1\x1b[2J 4000 10.0.0.2\x07 22", {});
  EXPECT_EQ(report.reached.launcher, "10.0.0.1\\x1b[2J");
  EXPECT_EQ(report.reached.address, "10.0.0.2\\x07");
}

TEST(LaunchVerdict, TheCauseIsTheKilledRankOrElseTheFirst) {
  const RankFailure failed{1, "a", {.status = 1}};
  const RankFailure killed{2, "b", {.status = 139}};
  const RankFailure lost{0, "c", {.status = 255, .connection_lost = true}};
  EXPECT_EQ(first_cause({failed}).rank, 1);
  EXPECT_EQ(first_cause({failed, killed}).rank, 2);
  EXPECT_EQ(first_cause({failed, killed, lost}).rank, 0);
}

TEST(LaunchVerdict, NamesRankHostAndExit) {
  EXPECT_EQ(text_of(RankFailure{3, "a", {.status = 139}}, 4),
            "rank 3 of 4 on a was killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(text_of(RankFailure{0, "a", {.status = 3}}, 1),
            "rank 0 of 1 on a exited with status 3");
}

}  // namespace
}  // namespace mccl::cli::launch
