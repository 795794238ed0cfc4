#include "client/launch/layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "device/base/file.h"

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
            "1 instance x 3 IPUs = 3 IPUs; IPUs per instance and in total must be powers of two");
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

TEST_F(LayoutTest, IldsAreCheckedAgainWhenTheServerSaysTheirNumber) {
  auto layout = Make({"--num-instances=4", "--num-replicas=8"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  layout->ilds = 4;
  EXPECT_TRUE(CheckIlds(*layout).ok());
  layout->ilds = 8;
  EXPECT_EQ(CheckIlds(*layout).message(), "--num-instances (4) must be at least --num-ilds (8)");
  layout->ilds = 3;
  EXPECT_EQ(CheckIlds(*layout).message(),
            "--num-replicas (8) must be a multiple of --num-ilds (3)");
}

TEST_F(LayoutTest, MoreIpusThanTheLargestPodAreRefused) {
  EXPECT_EQ(Error({"--num-replicas=65536", "--ipus-per-replica=65536"}),
            "65536 replicas x 65536 IPUs = 4294967296 IPUs; the largest POD has 65536");
  EXPECT_EQ(Error({"--num-replicas=32768", "--ipus-per-replica=4", "--offline-mode=on"}),
            "32768 replicas x 4 IPUs = 131072 IPUs; the largest POD has 65536");
  EXPECT_TRUE(Make({"--num-replicas=65536"}).ok());
}

TEST_F(LayoutTest, InstancesAreDealtToTheHostsInOrder) {
  const auto layout = Make({"--host=h[1-4]", "--num-instances=16", "--num-replicas=64"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  for (uint32_t i = 0; i < 16; ++i) {
    EXPECT_EQ(layout->host_of(i), i / 4);
    EXPECT_EQ(layout->local_index(i), i % 4);
  }
}

TEST_F(LayoutTest, NothingIsCopiedToOtherHosts) {
  ASSERT_TRUE(Make({"--host=h[1-2]", "--num-instances=2", "--num-replicas=2",
                    "--synchronise-poplar-sdk=yes", "--distribute-ssh-key=1"})
                  .ok());
  EXPECT_EQ(warnings_,
            Words({"--synchronise-poplar-sdk, --distribute-ssh-key: nothing is copied; the hosts "
                   "need the same files at the same places, and a login without a password"}));
  ASSERT_TRUE(Make({"--synchronise-poplar-sdk=yes"}).ok());
  EXPECT_TRUE(warnings_.empty());
  ASSERT_TRUE(Make({"--host=h[1-2]", "--num-instances=2", "--num-replicas=2",
                    "--synchronise-python-venv=no"})
                  .ok());
  EXPECT_TRUE(warnings_.empty());
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
  ASSERT_TRUE(Make({"--host=h[1-4]", "--num-instances=2", "--num-replicas=2"}).ok());
  EXPECT_EQ(warnings_, Words({"2 instance(s) on 4 hosts; using h1, h2 only"}));
}

TEST_F(LayoutTest, HostsComeFromAFileALine) {
  const std::string path = testing::TempDir() + "/hosts";
  std::ofstream(path) << "h0\n\n  h[1-2] \nh3";
  const auto layout = Make({"--hostfile", path, "--num-instances=4", "--num-replicas=4"});
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->hosts, Words({"h0", "h1", "h2", "h3"}));
  EXPECT_TRUE(layout->hosts_given);
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
[0]: localhost
)");
}

TEST(TopologyTable, SixteenInstancesOnFourHostsAreThePublishedTable) {
  Layout layout;
  layout.hosts = {"10.1.3.101", "10.1.3.102", "10.1.3.103", "10.1.3.104"};
  layout.replicas = 64;
  layout.instances = 16;
  const std::string golden = base::ReadFile("client/launch/testdata/topology_64_replicas.txt");
  EXPECT_EQ(TopologyTable(layout), golden);
}

TEST(TopologyTable, TwoHostsAndTwoIldsShareTheReplicas) {
  Layout layout;
  layout.hosts = {"h1", "h2"};
  layout.replicas = 8;
  layout.instances = 4;
  layout.ilds = 2;
  EXPECT_EQ(TopologyTable(layout), R"( ===========================================
|              poprun topology              |
|===========================================|
| hosts     |      h1       |      h2       |
|-----------|-------------------------------|
| ILDs      |       0       |       1       |
|-----------|-------------------------------|
| instances |   0   |   1   |   2   |   3   |
|-----------|-------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
 -------------------------------------------
)");
}

TEST(TopologyTable, OneReplicaIsTheNarrowest) {
  Layout layout;
  layout.hosts = {"localhost"};
  EXPECT_EQ(TopologyTable(layout), R"( ===============
| poprun top... |
|===============|
| hosts     | . |
|-----------|---|
| ILDs      | 0 |
|-----------|---|
| instances | 0 |
|-----------|---|
| replicas  | 0 |
 ---------------
[0]: localhost
)");
}

TEST(TopologyTable, ALegendNamesEveryHostThatIsShownByIndex) {
  Layout layout;
  layout.hosts = {"h1", "gc-poplar-02"};
  layout.replicas = layout.instances = 4;
  EXPECT_EQ(TopologyTable(layout), R"( ===========================
|      poprun topology      |
|===========================|
| hosts     |  [0]  |  [1]  |
|-----------|---------------|
| ILDs      |       0       |
|-----------|---------------|
| instances | 0 | 1 | 2 | 3 |
|-----------|---------------|
| replicas  | 0 | 1 | 2 | 3 |
 ---------------------------
[0]: h1
[1]: gc-poplar-02
)");
}

// A name needs a blank on each side.
TEST(TopologyTable, ANameThatFillsItsCellIsShownByIndex) {
  Layout layout;
  layout.replicas = 2;
  for (const auto& [host, shown] : {std::pair("node7", "| node7 |"), {"node17", "|  [0]  |"}}) {
    layout.hosts = {host};
    EXPECT_NE(TopologyTable(layout).find(shown), std::string::npos) << TopologyTable(layout);
  }
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
