#include "client/launch/mpirun_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/launch/words.h"

namespace vpod::launch {
namespace {

using Words = std::vector<std::string>;

// Words of a text without quotes, separated by blanks and line breaks.
Words Split(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

class MpirunCommandTest : public testing::Test {
 protected:
  MpirunCommandTest() {
    for (const char* name : {"POPLAR_ENGINE_OPTIONS", "IPUOF_LOG_LEVEL", "SLURM_JOB_NODELIST",
                             "POPRUN_LAUNCH_AGENT", "VPOD_JOB_ID", "VIPU_CLI_API_ACCESS_KEY"})
      unsetenv(name);
  }

  static Words Arguments(const Words& command, const std::optional<MpiTarget>& target,
                         bool numa_wrapper = false, bool this_host_follows = false) {
    const auto options = ParseOptions(command);
    EXPECT_TRUE(options.ok()) << options.status();
    if (!options.ok()) return {};
    Words warnings;
    auto layout = MakeLayout(*options, warnings);
    EXPECT_TRUE(layout.ok()) << layout.status();
    if (!layout.ok()) return {};
    layout->this_host_follows = this_host_follows;
    return MpirunArguments(*options, *layout, target, numa_wrapper);
  }
};

MpiTarget Partition(const std::string& id, std::optional<uint32_t> device) {
  return {.server_host = "10.1.3.101",
          .partition_id = id,
          .node_device_id = device,
          .target_options = R"({"instanceSize":"4"})"};
}

std::vector<Words> Contexts(const Words& words) {
  std::vector<Words> contexts(1);
  for (const std::string& word : words) {
    if (word == ":") {
      contexts.emplace_back();
    } else {
      contexts.back().push_back(word);
    }
  }
  return contexts;
}

bool Has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The published 64-IPU run. Ours passes each -x name once, at its first place and with its last
// value.
TEST_F(MpirunCommandTest, SixteenInstancesOnFourHostsAreThePublishedWords) {
  setenv("POPLAR_ENGINE_OPTIONS", "{}", 1);
  MpiTarget target = Partition("p64", 126);
  target.target_options = R"({"ipuLinkDomainSize":"64","ipuLinkConfiguration":"slidingWindow",)"
                          R"("ipuLinkTopology":"torus","gatewayMode":"true","instanceSize":"4"})";
  const Words words = Arguments(
      {"--vv", "--num-instances=16", "--num-replicas=64", "--vipu-server-host=10.1.3.101",
       "--host=10.1.3.101,10.1.3.102,10.1.3.103,10.1.3.104", "--vipu-partition=p64",
       "--reset-partition=no", "--executable-cache-path", "cache/rn50-pod64",
       "--mpi-global-args=--mca btl_tcp_if_include eno1",
       "--mpi-local-args=-x LD_LIBRARY_PATH -x OPAL_PREFIX -x PATH -x CPATH -x PYTHONPATH "
       "-x IPUOF_VIPU_API_TIMEOUT=800 -x POPLAR_ENGINE_OPTIONS",
       "python3", "train.py", "--config", "resnet50-pod64"},
      target, /*numa_wrapper=*/true);
  const auto context = [&](int offset, int local_index) {
    return absl::StrCat(
        "-np 1 -x POPDIST_NUM_TOTAL_REPLICAS=64 -x POPDIST_NUM_IPUS_PER_REPLICA=1 "
        "-x POPDIST_NUM_LOCAL_REPLICAS=4 -x POPDIST_UNIFORM_REPLICAS_PER_INSTANCE=1 "
        "-x POPDIST_NODE_DEVICE_ID=126 -x POPDIST_EXECUTABLE_CACHE_PATH=cache/rn50-pod64 "
        "-x POPDIST_REPLICA_INDEX_OFFSET=",
        offset, " -x POPDIST_LOCAL_INSTANCE_INDEX=", local_index,
        " -x IPUOF_VIPU_API_HOST=10.1.3.101 -x IPUOF_VIPU_API_PORT=8090 "
        "-x IPUOF_VIPU_API_PARTITION_ID=p64 -x IPUOF_VIPU_API_TIMEOUT=800 "
        "-x IPUOF_LOG_LEVEL=WARN -x PATH -x LD_LIBRARY_PATH -x PYTHONPATH "
        "-x POPLAR_ENGINE_OPTIONS -x OPAL_PREFIX -x CPATH -x POPLAR_TARGET_OPTIONS=",
        target.target_options, " poprun_numa_wrapper python3 train.py --config resnet50-pod64");
  };
  const std::vector<Words> contexts = Contexts(words);
  ASSERT_EQ(contexts.size(), 16u);
  EXPECT_EQ(contexts[0],
            Split(absl::StrCat("--mca btl_tcp_if_include eno1 --bind-to none --tag-output "
                               "--allow-run-as-root -H "
                               "10.1.3.101:4,10.1.3.102:4,10.1.3.103:4,10.1.3.104:4 ",
                               context(0, 0))));
  for (int i = 1; i < 16; ++i) EXPECT_EQ(contexts[i], Split(context(4 * i, i % 4))) << i;
  EXPECT_EQ(contexts[5], Split(context(20, 1)));  // the second one that was published
}

// The published run of one instance; ours adds --oversubscribe without hosts.
TEST_F(MpirunCommandTest, OneLocalInstanceIsThePublishedCommand) {
  MpiTarget target;
  target.server_host = "10.21.21.129";
  target.partition_id = "p-bert-poprun-64ipus-gc-dev-0";
  target.target_options = R"({"ipuLinkDomainSize":"64","ipuLinkConfiguration":"slidingWindow",)"
                          R"("ipuLinkTopology":"torus","gatewayMode":"true","instanceSize":"64"})";
  const Words words =
      Arguments({"--allow-run-as-root", "1", "--vv", "--num-instances", "1", "--num-replicas", "16",
                 "--mpi-global-args=--tag-output", "--ipus-per-replica", "4", "python3",
                 "run_pretraining.py", "--config", "pretrain_large_128_POD64"},
                target);
  EXPECT_EQ(
      QuotedCommand("/opt/poplar/bin/mpirun", words),
      "/opt/poplar/bin/mpirun '--tag-output' '--bind-to' 'none' '--tag-output' "
      "'--allow-run-as-root' '--oversubscribe' '-np' '1' '-x' 'POPDIST_NUM_TOTAL_REPLICAS=16' "
      "'-x' 'POPDIST_NUM_IPUS_PER_REPLICA=4' '-x' 'POPDIST_NUM_LOCAL_REPLICAS=16' "
      "'-x' 'POPDIST_UNIFORM_REPLICAS_PER_INSTANCE=1' '-x' 'POPDIST_REPLICA_INDEX_OFFSET=0' "
      "'-x' 'POPDIST_LOCAL_INSTANCE_INDEX=0' '-x' 'IPUOF_VIPU_API_HOST=10.21.21.129' "
      "'-x' 'IPUOF_VIPU_API_PORT=8090' "
      "'-x' 'IPUOF_VIPU_API_PARTITION_ID=p-bert-poprun-64ipus-gc-dev-0' "
      "'-x' 'IPUOF_VIPU_API_TIMEOUT=120' '-x' 'IPUOF_VIPU_API_GCD_ID=0' "
      "'-x' 'IPUOF_LOG_LEVEL=WARN' '-x' 'PATH' '-x' 'LD_LIBRARY_PATH' '-x' 'PYTHONPATH' "
      "'-x' 'POPLAR_TARGET_OPTIONS={\"ipuLinkDomainSize\":\"64\","
      "\"ipuLinkConfiguration\":\"slidingWindow\",\"ipuLinkTopology\":\"torus\","
      "\"gatewayMode\":\"true\",\"instanceSize\":\"64\"}' 'python3' 'run_pretraining.py' "
      "'--config' 'pretrain_large_128_POD64'");
}

TEST_F(MpirunCommandTest, InstancesOfANonReconfigurablePartitionHaveTheirOwnGcd) {
  const std::vector<Words> contexts =
      Contexts(Arguments({"--num-instances=2", "--num-replicas=4", "app"}, Partition("p", {})));
  ASSERT_EQ(contexts.size(), 2u);
  EXPECT_TRUE(Has(contexts[0], "IPUOF_VIPU_API_GCD_ID=0"));
  EXPECT_TRUE(Has(contexts[1], "IPUOF_VIPU_API_GCD_ID=1"));
  EXPECT_EQ(absl::StrJoin(contexts[1], " ").find("POPDIST_NODE_DEVICE_ID"), std::string::npos);
}

TEST_F(MpirunCommandTest, OfflineModeHasPopdistVariablesOnly) {
  const std::string text = absl::StrJoin(
      Arguments({"--offline-mode=on", "--num-instances=2", "--num-replicas=4", "app"}, {}), " ");
  EXPECT_NE(text.find("POPDIST_NUM_TOTAL_REPLICAS=4"), std::string::npos) << text;
  EXPECT_EQ(text.find("IPUOF_VIPU"), std::string::npos) << text;
  EXPECT_EQ(text.find("POPLAR_TARGET_OPTIONS"), std::string::npos) << text;
}

TEST_F(MpirunCommandTest, TargetOptionsOfThePartitionWinOverTheUsersExport) {
  const Words words =
      Arguments({"--mpi-local-args=-x POPLAR_TARGET_OPTIONS -x B", "app"}, Partition("p", {}));
  const auto place =
      std::find(words.begin(), words.end(), R"(POPLAR_TARGET_OPTIONS={"instanceSize":"4"})");
  ASSERT_NE(place, words.end());
  EXPECT_EQ(Words(place + 1, words.end()), Words({"-x", "B", "app"}));  // at its first place
  EXPECT_FALSE(Has(words, "POPLAR_TARGET_OPTIONS"));
}

TEST_F(MpirunCommandTest, LocalWordsOtherThanExportsPrecedeTheProgram) {
  const Words words =
      Arguments({"--mpi-local-args=--tag-output -x A=b=c -x", "app", "arg"}, std::nullopt);
  EXPECT_EQ(Words(words.end() - 6, words.end()),
            Words({"-x", "A=b=c", "--tag-output", "-x", "app", "arg"}));
}

TEST_F(MpirunCommandTest, HostSubnetStandsForBothNetworkParameters) {
  EXPECT_EQ(absl::StrJoin(Arguments({"--host=h0", "--host-subnet=10.5.0.0/16", "app"}, {}), " ")
                .rfind("--mca btl_tcp_if_include 10.5.0.0/16 --mca oob_tcp_if_include 10.5.0.0/16 "
                       "--bind-to none",
                       0),
            0u);
  // Ignored without hosts.
  EXPECT_EQ(Arguments({"--host-subnet=10.5.0.0/16", "app"}, {})[0], "--bind-to");
}

// mpirun deals to its own host first. Then each context names its host.
TEST_F(MpirunCommandTest, HostsAreNamedByContextWhereThisOneIsNotTheFirst) {
  const std::vector<Words> contexts = Contexts(
      Arguments({"--host=h2,localhost", "--num-instances=4", "--num-replicas=4", "app"}, {}, false,
                /*this_host_follows=*/true));
  ASSERT_EQ(contexts.size(), 4u);
  EXPECT_EQ(
      absl::StrJoin(contexts[0], " ")
          .rfind("--bind-to none --tag-output --allow-run-as-root -np 1 -H h2:2 -x POPDIST", 0),
      0u);
  for (const auto& [instance, host] :
       std::map<int, std::string>{{1, "h2:2"}, {2, "localhost:2"}, {3, "localhost:2"}}) {
    EXPECT_EQ(Words(contexts[instance].begin(), contexts[instance].begin() + 4),
              Words({"-np", "1", "-H", host}));
  }
}

TEST_F(MpirunCommandTest, LaunchAgentTakesThePlaceOfSshOnHosts) {
  EXPECT_EQ(absl::StrJoin(Arguments({"--host=h0", "--launch-agent=/opt/agent -q", "app"}, {}), " ")
                .rfind("--mca plm rsh --mca plm_rsh_agent /opt/agent -q --bind-to none", 0),
            0u);
  // One word for mpirun, which splits it.
  EXPECT_TRUE(
      Has(Arguments({"--host=h0", "--launch-agent=/opt/agent -q", "app"}, {}), "/opt/agent -q"));
  EXPECT_EQ(Arguments({"--launch-agent=/opt/agent", "app"}, {})[0], "--bind-to");
}

// By name only, so that no secret comes into a command line or log. The access key does not travel
// at all, as mpirun sends variables in clear.
TEST_F(MpirunCommandTest, InstancesOnOtherHostsGetThePodsVariables) {
  setenv("VPOD_JOB_ID", "j1", 1);
  setenv("VIPU_CLI_API_USER_ID", "ada", 1);
  setenv("VIPU_CLI_API_ACCESS_KEY", "secret", 1);
  const Words remote = Arguments({"--host=h0", "app"}, {}), local = Arguments({"app"}, {});
  for (const char* name : {"VPOD_JOB_ID", "VIPU_CLI_API_USER_ID", "VIPU_CLI_API_ACCESS_KEY"})
    unsetenv(name);
  EXPECT_TRUE(Has(remote, "VPOD_JOB_ID"));
  EXPECT_TRUE(Has(remote, "VIPU_CLI_API_USER_ID"));
  EXPECT_FALSE(Has(remote, "VIPU_CLI_API_ACCESS_KEY"));
  EXPECT_EQ(absl::StrJoin(remote, " ").find("secret"), std::string::npos);
  EXPECT_FALSE(Has(local, "VPOD_JOB_ID"));
}

TEST_F(MpirunCommandTest, DebugShowsAllocationAndMap) {
  EXPECT_EQ(absl::StrJoin(Arguments({"--debug", "app"}, {}), " ")
                .rfind("--display-allocation --display-map --bind-to none", 0),
            0u);
}

TEST_F(MpirunCommandTest, RootFlagCanBeTakenAway) {
  EXPECT_TRUE(Has(Arguments({"app"}, {}), "--allow-run-as-root"));
  EXPECT_FALSE(Has(Arguments({"--allow-run-as-root=0", "app"}, {}), "--allow-run-as-root"));
}

TEST_F(MpirunCommandTest, LogLevelOfTheCallerIsPassedOn) {
  setenv("IPUOF_LOG_LEVEL", "DEBUG", 1);
  EXPECT_TRUE(Has(Arguments({"app"}, {}), "IPUOF_LOG_LEVEL=DEBUG"));
}

}  // namespace
}  // namespace vpod::launch
