#include "client/launch/layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace vpod::launch {
namespace {

using Words = std::vector<std::string>;

class LayoutTest : public testing::Test {
 protected:
  LayoutTest() { unsetenv("SLURM_JOB_NODELIST"); }
  ~LayoutTest() override { unsetenv("SLURM_JOB_NODELIST"); }

  absl::StatusOr<Layout> Make(Words words) {
    words.push_back("app");
    const auto options = ParseOptions(words);
    EXPECT_TRUE(options.ok()) << options.status();
    if (!options.ok()) return options.status();
    warnings_.clear();
    return MakeLayout(*options, warnings_);
  }
  std::string Error(const Words& words) {
    const auto layout = Make(words);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument) << layout.status();
    return std::string(layout.status().message());
  }

  Words warnings_;
};

TEST_F(LayoutTest, InstancesMustNotExceedReplicas) {
  EXPECT_EQ(Error({"--num-instances=8", "--num-replicas=4"}),
            "--num-instances (8) must not exceed --num-replicas (4)");
}

TEST_F(LayoutTest, ReplicasMustBeAMultipleOfInstances) {
  EXPECT_EQ(Error({"--num-instances=4", "--num-replicas=10"}),
            "--num-replicas (10) must be a multiple of --num-instances (4)");
}

TEST_F(LayoutTest, InstancesMustBeAMultipleOfHosts) {
  EXPECT_EQ(Error({"--num-instances=6", "--num-replicas=6", "--host=h[0-3]"}),
            "--num-instances (6) must be a multiple of the number of hosts (4)");
}

TEST_F(LayoutTest, HostAndHostfileExcludeEachOther) {
  EXPECT_EQ(Error({"--host=h0", "--hostfile=hosts"}), "--host and --hostfile exclude each other");
}

TEST_F(LayoutTest, BadRangesAndDuplicateHostsAreRefused) {
  EXPECT_EQ(Error({"--host=h[3-1]"}), "--host: bad range in 'h[3-1]'");
  EXPECT_EQ(Error({"--host=h1,h[0-2]"}), "duplicate host 'h1'");
  for (const char* bad : {"h[0-2", "h0-2]", "h[]", "h[a-b]", "h[1-2-3]", "h[1,]", "h[[0-1]]",
                          "h[0-99999999]", "h[-1]", "h[0-1]x"}) {
    EXPECT_EQ(Error({"--host", bad}), std::string("--host: bad range in '") + bad + "'");
  }
  EXPECT_EQ(Error({"--host=h0,,h1"}), "--host: empty host name");
}

TEST_F(LayoutTest, IldsMustFitInstancesAndReplicas) {
  EXPECT_EQ(Error({"--num-ilds=2", "--num-replicas=2"}),
            "--num-instances (1) must be at least --num-ilds (2)");
  EXPECT_EQ(Error({"--num-ilds=2", "--num-instances=3", "--num-replicas=3"}),
            "--num-replicas (3) must be a multiple of --num-ilds (2)");
}

TEST_F(LayoutTest, NumbersOfIpusMustBePowersOfTwoUnlessOffline) {
  const Words words = {"--num-instances=3", "--num-replicas=6", "--ipus-per-replica=2"};
  EXPECT_EQ(Error(words),
            "3 instances x 4 IPUs = 12 IPUs; IPUs per instance and in total must be powers of two");
  EXPECT_EQ(Error({"--ipus-per-replica=3"}),
            "1 instances x 3 IPUs = 3 IPUs; IPUs per instance and in total must be powers of two");
  Words offline = words;
  offline.push_back("--offline-mode=on");
  EXPECT_TRUE(Make(offline).ok());
}

TEST_F(LayoutTest, ShownInstanceMustExist) {
  EXPECT_EQ(Error({"--num-instances=4", "--num-replicas=4", "--only-output-from-instance=4"}),
            "--only-output-from-instance (4) must be less than --num-instances (4)");
  EXPECT_TRUE(
      Make({"--num-instances=4", "--num-replicas=4", "--only-output-from-instance=3"}).ok());
}

TEST_F(LayoutTest, HostRangesExpand) {
  EXPECT_EQ(*ParseHosts("host0,host1"), Words({"host0", "host1"}));
  EXPECT_EQ(*ParseHosts("host[0-2,4]"), Words({"host0", "host1", "host2", "host4"}));
  EXPECT_EQ(*ParseHosts("gc-poplar-[02-04],x"),
            Words({"gc-poplar-02", "gc-poplar-03", "gc-poplar-04", "x"}));
  EXPECT_EQ(*ParseHosts("a[9-11]"), Words({"a9", "a10", "a11"}));
  EXPECT_EQ(*ParseHosts("10.1.3.[101-102]"), Words({"10.1.3.101", "10.1.3.102"}));
}

TEST_F(LayoutTest, WithoutHostsEverythingIsLocal) {
  const auto layout = Make({"--num-instances=2", "--num-replicas=4", "--ipus-per-replica=2"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->hosts, Words({"localhost"}));
  EXPECT_FALSE(layout->hosts_given);
  EXPECT_EQ(layout->local_replicas(), 2u);
  EXPECT_EQ(layout->instances_per_host(), 2u);
  EXPECT_EQ(layout->ipus_per_instance(), 4u);
  EXPECT_EQ(layout->ipus(), 8u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(LayoutTest, FewerInstancesThanHostsUseTheFirstAndWarn) {
  const auto layout = Make({"--host=10.1.3.[101-104]"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->hosts, Words({"10.1.3.101"}));
  EXPECT_TRUE(layout->hosts_given);
  EXPECT_EQ(warnings_, Words({"1 instance(s) on 4 hosts; using 10.1.3.101 only"}));
}

TEST_F(LayoutTest, HostsComeFromAFileALine) {
  const std::string path = testing::TempDir() + "/hosts";
  std::ofstream(path) << "h0\n\n  h[1-2] \nh3";
  const auto layout = Make({"--hostfile", path, "--num-instances=4", "--num-replicas=4"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->hosts, Words({"h0", "h1", "h2", "h3"}));
  EXPECT_TRUE(layout->hosts_given);
  EXPECT_EQ(Error({"--hostfile", path + ".missing"}),
            "--hostfile: cannot read " + path + ".missing");
}

TEST_F(LayoutTest, SlurmNodesCountAsHostsWhenThereAreSeveral) {
  setenv("SLURM_JOB_NODELIST", "gc-poplar-02", 1);
  auto layout = Make({"--num-instances=2", "--num-replicas=2"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->hosts, Words({"gc-poplar-02"}));
  EXPECT_FALSE(layout->hosts_given);
  setenv("SLURM_JOB_NODELIST", "gc-poplar-[02-03]", 1);
  layout = Make({"--num-instances=2", "--num-replicas=2"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->hosts, Words({"gc-poplar-02", "gc-poplar-03"}));
  EXPECT_TRUE(layout->hosts_given);
  layout = Make({"--num-instances=2", "--num-replicas=2", "--host=h0"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->hosts, Words({"h0"}));
}

TEST(TopologyTable, TwoInstancesOfFourReplicasAreThePublishedTable) {
  Layout layout;
  layout.hosts = {"localhost"};
  layout.replicas = 8;
  layout.instances = 2;
  EXPECT_EQ(TopologyTable(layout), R"( ===========================================
|              poprun topology              |
|===========================================|
| hosts     |           localhost           |
|-----------|-------------------------------|
| ILDs      |               0               |
|-----------|-------------------------------|
| instances |       0       |       1       |
|-----------|-------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
 -------------------------------------------
)");
}

TEST(TopologyTable, HostsThatDoNotFitAreShownByIndex) {
  Layout layout;
  layout.hosts = {"localhost"};
  layout.replicas = 2;
  layout.instances = 2;
  EXPECT_EQ(TopologyTable(layout), R"( ===================
|  poprun topology  |
|===================|
| hosts     |  [0]  |
|-----------|-------|
| ILDs      |   0   |
|-----------|-------|
| instances | 0 | 1 |
|-----------|-------|
| replicas  | 0 | 1 |
 -------------------
)");
}

TEST(TopologyTable, SixteenInstancesOnFourHostsAreThePublishedTable) {
  Layout layout;
  layout.hosts = {"10.1.3.101", "10.1.3.102", "10.1.3.103", "10.1.3.104"};
  layout.replicas = 64;
  layout.instances = 16;
  std::ifstream file("client/launch/testdata/topology_64_replicas.txt");
  const std::string golden((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  EXPECT_EQ(TopologyTable(layout), golden);
}

TEST(TopologyTable, OneReplicaIsTheNarrowest) {
  Layout layout;
  layout.hosts = {"localhost"};
  EXPECT_EQ(TopologyTable(layout), R"( ===============
|poprun topology|
|===============|
| hosts     |[0]|
|-----------|---|
| ILDs      | 0 |
|-----------|---|
| instances | 0 |
|-----------|---|
| replicas  | 0 |
 ---------------
)");
}

TEST(TopologyTable, IldsSplitTheReplicasEvenlyAndOddPaddingGoesRight) {
  Layout layout;
  layout.hosts = {"gc-poplar-02"};
  layout.replicas = 4;
  layout.instances = 2;
  layout.ilds = 2;
  EXPECT_EQ(TopologyTable(layout), R"( ===========================
|      poprun topology      |
|===========================|
| hosts     | gc-poplar-02  |
|-----------|---------------|
| ILDs      |   0   |   1   |
|-----------|---------------|
| instances |   0   |   1   |
|-----------|---------------|
| replicas  | 0 | 1 | 2 | 3 |
 ---------------------------
)");
}

}  // namespace
}  // namespace vpod::launch
