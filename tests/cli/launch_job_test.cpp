// What `mccl launch` would run: ranks, environments, files, remote scripts; and how it judges ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cli/launch/job.h"
#include "cli/launch/mpi.h"
#include "cli/launch/remote_script.h"
#include "cli/launch/report.h"
#include "cli/launch/ssh.h"
#include "cli/launch/verdict.h"
#include "cli/program_words.h"
#include "mccl/error.h"

namespace mccl::cli::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Request request_for(const std::string& hosts, std::optional<int> ranks) {
  Request request;
  request.program = {"./program", "-x"};
  request.hosts = parse_hosts("--hosts", hosts);
  request.ranks_per_host = ranks;
  request.directory = "/work";
  return request;
}

const std::vector<Reached> kPlaces = {{"10.0.0.1", "/tmp/a"}, {"fd77::2", "/tmp/b"}};

TEST(LaunchJob, RanksFollowTheHosts) {
  const Job job = plan_job(request_for("a,b,a", 2), "key");
  ASSERT_EQ(job.size(), 6);
  EXPECT_EQ(job.hosts.size(), 2U);
  EXPECT_EQ(job.ranks[5].host, 0U);
  EXPECT_EQ(job.ranks[5].local_rank, 3);
  EXPECT_EQ(job.ranks_on(0), 4);
  EXPECT_FALSE(job.all_here());
}

TEST(LaunchJob, SlotsSayHowManyUnlessAFlagDoes) {
  Request request = request_for("a,b", {});
  request.hosts[0].slots = 3;
  EXPECT_EQ(plan_job(request, "key").size(), 4);
  request.ranks_per_host = 2;
  EXPECT_EQ(plan_job(request, "key").size(), 4);
  request.ranks_per_host = 4096;
  EXPECT_THROW(plan_job(request, "key"), InvalidArgument);
}

TEST(LaunchJob, APythonScriptGetsThePythonOfItsHost) {
  Request request = request_for("a,b", {});
  request.program = {"train.py", "x"};
  request.python = "/here/python";
  request.hosts[1].python = "/there/python";
  const Job job = plan_job(request, "key");
  EXPECT_THAT(job.ranks[0].argv, ElementsAre("/here/python", "train.py", "x"));
  EXPECT_THAT(job.ranks[1].argv, ElementsAre("/there/python", "train.py", "x"));
}

TEST(LaunchJob, EveryFaceFindsItsVariables) {
  Request request = request_for("a,b", 2);
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
                              {"MCCL_LOG_LEVEL", "INFO"},
                              {"MLX_RANK", "3"},
                              {"MLX_WORLD_SIZE", "4"},
                              {"MLX_HOSTFILE", "/tmp/b/hostfile.json"},
                              {"NCCL_HOST_IP", "10.0.0.1"},
                              {"NCCL_PORT", "12345"},
                              {"RANK", "3"},
                              {"LOCAL_RANK", "1"},
                              {"GROUP_RANK", "1"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "32322"},
                              {"PYTHONUNBUFFERED", "1"},
                              {"A", "1"},
                              {"B", "2"}};
  EXPECT_EQ(third, expected);
}

TEST(LaunchJob, TheRingsFileIsMlxs) {
  Request request = request_for("a,b", {});
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

TEST(LaunchJob, DevicesGoToEveryPairOfRanks) {
  Request request = request_for("a,b", 2);
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

TEST(LaunchJob, OnlyNcclGetsADeviceForEachRank) {
  Request request = request_for("127.0.0.1", 2);
  Job job = plan_job(request, "key");
  EXPECT_FALSE(environment_of(job, job.ranks[1], ports_from(job, 100), kPlaces, {})
                   .contains("CUDA_VISIBLE_DEVICES"));
  request.backend = Backend::nccl;
  job = plan_job(request, "key");
  EXPECT_EQ(environment_of(job, job.ranks[1], ports_from(job, 100), kPlaces, {})
                .at("CUDA_VISIBLE_DEVICES"),
            "1");
}

TEST(LaunchJob, ADryRunShowsEverythingButTheKey) {
  Request request = request_for("a", 1);
  request.program = {"./my program", "it's"};
  const std::string text = text_of(plan_job(request, "topsecret"), {}, true);
  EXPECT_THAT(text, HasSubstr("# rank 0 of 1, on a, by ssh"));
  EXPECT_THAT(text, HasSubstr("cd /work &&"));
  EXPECT_THAT(text, HasSubstr("'./my program' 'it'\\''s'"));
  EXPECT_THAT(text, HasSubstr("MCCL_RANK=0"));
  EXPECT_THAT(text, Not(HasSubstr("topsecret")));
}

TEST(LaunchMpi, EitherMpirunIsToldHostsAndFolder) {
  const Job job = plan_job(request_for("a,b", 2), "key");
  const std::vector<std::string> open_mpi =
      mpirun_words(job, MpirunKind::open_mpi, {{"NAME", "value"}}, {"--bind-to", "none"});
  EXPECT_THAT(std::vector(open_mpi.begin(), open_mpi.begin() + 13),
              ElementsAre("mpirun", "-n", "4", "--host", "a:2,b:2", "--wdir", "/work", "-x", "NAME",
                          "--bind-to", "none", "sh", "-c"));
  const std::vector<std::string> hydra =
      mpirun_words(job, MpirunKind::hydra, {{"NAME", "value"}}, {});
  EXPECT_THAT(std::vector(hydra.begin(), hydra.begin() + 9),
              ElementsAre("mpirun", "-n", "4", "-hosts", "a:2,b:2", "-wdir", "/work", "sh", "-c"));
  for (const auto& words : {open_mpi, hydra}) {
    EXPECT_THAT(std::vector(words.end() - 2, words.end()), ElementsAre("./program", "-x"));
    EXPECT_EQ(std::ranges::count(words, "value"), 0) << "a value is on the command line";
  }
}

TEST(LaunchMpi, RanksGetTheBackendAndWhereTorchMeets) {
  const Job job = plan_job(request_for("a,b", 1), "key");
  const Variables set = {{"MCCL_TIMEOUT", "5"}, {"HOME", "/root"}};
  Variables variables = variables_of_mpi(job, 1234, set);
  EXPECT_EQ(variables["MCCL_BACKEND"], "mpi");
  EXPECT_EQ(variables["MASTER_ADDR"], "a");
  EXPECT_EQ(variables["MASTER_PORT"], "1234");
  EXPECT_EQ(variables["MCCL_TIMEOUT"], "5");
  EXPECT_FALSE(variables.contains("HOME"));
  // Who has chosen another engine keeps it.
  variables = variables_of_mpi(job, 1234, {{"MCCL_BACKEND", "native"}});
  EXPECT_EQ(variables["MCCL_BACKEND"], "native");
}

TEST(LaunchMpi, AnMpirunIsKnownByItsVersion) {
  EXPECT_EQ(kind_of_mpirun("m", "mpirun (Open MPI) 4.1.4\n"), MpirunKind::open_mpi);
  EXPECT_EQ(kind_of_mpirun("m", "HYDRA build details:\n"), MpirunKind::hydra);
  EXPECT_EQ(kind_of_mpirun("m", "Intel(R) MPI Library for Linux* OS, Version 2021.13"),
            MpirunKind::hydra);
  EXPECT_THROW(kind_of_mpirun("m", "something else"), Error);
}

TEST(LaunchRemote, NothingButATokenIsOnACommandLine) {
  const std::string command = guard_command("token");
  EXPECT_EQ(std::ranges::count(command, '\''), 2);
  EXPECT_EQ(command.find('\n'), std::string::npos);
  EXPECT_EQ(command.find('!'), std::string::npos);
  EXPECT_EQ(rank_command("/tmp/it is", 3), "exec sh '/tmp/it is/rank.3'");
  const Job job = plan_job(request_for("a", 1), "topsecret");
  const auto words = ssh_words(job.hosts[0], SshRole::session, "/s", {"-v"}, rank_command("/t", 0));
  for (const std::string& word : words) EXPECT_EQ(word.find("topsecret"), std::string::npos);
  EXPECT_THAT(words, ::testing::Contains("BatchMode=yes"));
}

TEST(LaunchRemote, ComplaintsOfSshComeWithTheCure) {
  const Host host = parse_host("", "me@a");
  EXPECT_THAT(explain_ssh(host, "me@a: Permission denied (publickey).\r\n"),
              HasSubstr("ssh-copy-id me@a"));
  EXPECT_THAT(explain_ssh(host, "Host key verification failed.\n"), HasSubstr("ssh me@a"));
  EXPECT_THAT(explain_ssh(host,
                          "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key "
                          "verification failed.\n"),
              HasSubstr("ssh-keygen -R me@a"));
  EXPECT_THAT(explain_ssh(host, "connect to host a port 22: Connection refused"),
              HasSubstr("sshd"));
  EXPECT_THAT(explain_ssh(host, "connect to host a: Connection timed out"), HasSubstr("reached"));
  EXPECT_THAT(explain_ssh(host, "something new\x1b"), HasSubstr("something new\\x1b"));
  EXPECT_THAT(explain_ssh(host, ""), HasSubstr("ssh me@a"));
}

TEST(LaunchVerdict, TheCauseIsTheRankThatWasKilledElseTheFirst) {
  const Failure failed{1, "a", {.status = 1}};
  const Failure killed{2, "b", {.status = 139}};
  const Failure lost{0, "c", {.status = 255, .connection_lost = true}};
  EXPECT_EQ(first_cause({failed}).rank, 1);
  EXPECT_EQ(first_cause({failed, killed}).rank, 2);
  EXPECT_EQ(first_cause({failed, killed, lost}).rank, 0);
}

TEST(LaunchVerdict, ItTellsWhoWhereHowAndTheLastWords) {
  LastLines said;
  for (int i = 0; i < 30; ++i) said.add("line " + std::to_string(i) + "\n");
  said.add("half ");
  said.add("a line");
  const std::string text = text_of(Failure{3, "a", {.status = 139}}, 4, said);
  EXPECT_THAT(text, HasSubstr("rank 3 of 4 on a was killed by signal 11 (Segmentation fault)"));
  EXPECT_THAT(text, HasSubstr("  line 29\n  half a line\n"));
  EXPECT_THAT(text, Not(HasSubstr("line 20\n")));
  EXPECT_THAT(text_of(Exit{.status = 3}), HasSubstr("status 3"));
}

TEST(ProgramWords, EndWhereTheFlagsDo) {
  CLI::App app;
  int number = 0;
  bool flag = false;
  app.add_option("-n,--number", number);
  app.add_flag("--flag", flag);
  const auto end = [&](std::vector<const char*> words) { return end_of_flags(app, words); };
  EXPECT_EQ(end({"-n", "4", "prog", "-n", "5"}), 2U);
  EXPECT_EQ(end({"-n4", "--flag", "prog"}), 2U);
  EXPECT_EQ(end({"--number=4", "prog"}), 1U);
  EXPECT_EQ(end({"--number", "4", "--", "--flag"}), 3U);
  EXPECT_EQ(end({"--flag"}), 1U);
  EXPECT_EQ(end({"-n"}), 1U);
  EXPECT_EQ(end({"-", "x"}), 0U);
}

}  // namespace
}  // namespace mccl::cli::launch
