#include "client/vipu/ipuof_config.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "client/vipu/fake_controller.h"
#include "client/vipu/ipuof_json.h"
#include "device/base/file.h"

namespace vpod::vipu {
namespace {

namespace fs = std::filesystem;

vipuuser::PartitionConfig Config(const std::string& id, uint32_t gcd = 0, uint32_t gcds = 1) {
  vipuuser::PartitionConfig config;
  for (uint32_t i = 0; i < 2; ++i) {
    vipuuser::IpuofDevice* device = config.add_devices();
    device->set_ip("10.1.5.10");
    device->set_server_port(11003 - i);
    device->set_rdma_port(11103 - i);
    device->set_agent_id("ag0");
    device->set_ild(1);
    device->set_routing_id(i);
    device->set_pcie_id(3 - i);
    device->set_endpoint("127.0.0.1:4000");
  }
  auto& attributes = *config.mutable_attributes();
  attributes["GCD Id"] = std::to_string(gcd);
  attributes["Partition Id"] = id;
  attributes["Number of GCDs"] = std::to_string(gcds);
  attributes["Partition generation"] = "17";
  attributes["Note"] = "\"quoted\" \\ ü \n";
  config.set_fabric_key("5e1a");
  return config;
}

vipuuser::Partition Partition(const std::string& id, uint32_t gcds, bool shared = false) {
  vipuuser::Partition partition;
  partition.mutable_requirements()->set_id(id);
  partition.mutable_requirements()->set_num_gcds(gcds);
  partition.mutable_requirements()->set_shared(shared);
  for (uint32_t gcd = 0; gcd < gcds; ++gcd) *partition.add_gcds() = Config(id, gcd, gcds);
  return partition;
}

class IpuofFilesTest : public testing::Test {
 protected:
  IpuofFilesTest()
      : home_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()),
        directory_(home_ / ".ipuof.conf.d") {
    fs::remove_all(home_);
    fs::create_directories(home_);
    setenv("HOME", home_.c_str(), 1);
    for (const char* name :
         {"IPUOF_CONFIG_DIR", "IPUOF_CONFIG_PATH", "IPUOF_VIPU_API_HOST", "IPUOF_VIPU_API_PORT",
          "IPUOF_VIPU_API_PARTITION_ID", "IPUOF_VIPU_API_GCD_ID", "VIPU_CLI_API_HOST"})
      unsetenv(name);
  }
  ~IpuofFilesTest() override { fs::remove_all(home_); }

  static void Write(const vipuuser::Partition& partition) {
    const absl::Status status = WriteIpuofFiles(partition, "127.0.0.1:1");
    EXPECT_TRUE(status.ok()) << status;
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_))
      names.insert(entry.path().filename().string());
    return names;
  }
  static unsigned Mode(const fs::path& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  }
  // A file of nobody's controller.
  std::string File(const std::string& name, const vipuuser::PartitionConfig& config) const {
    fs::create_directories(directory_);
    const std::string path = (directory_ / name).string();
    std::ofstream(path) << IpuofJson(config);
    return path;
  }

  fs::path home_, directory_;
};

using Strings = std::set<std::string>;

TEST_F(IpuofFilesTest, OneGcdIsOneFileForItsOwner) {
  Write(Partition("p1", 1));
  EXPECT_EQ(Names(), Strings({"p1.conf"}));
  EXPECT_EQ(Mode(directory_ / "p1.conf"), 0600u);
  const auto config = ParseIpuofJson(base::ReadFile(directory_ / "p1.conf"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->attributes().at("Controller"), "127.0.0.1:1");
  EXPECT_EQ(config->attributes().at("Partition generation"), "17");
}

TEST_F(IpuofFilesTest, SeveralGcdsAreAFileEach) {
  Write(Partition("pa1x2", 2));
  EXPECT_EQ(Names(), Strings({"pa1x2_gcd0.conf", "pa1x2_gcd1.conf"}));
}

TEST_F(IpuofFilesTest, SharedPartitionIsReadableByAll) {
  Write(Partition("p1", 2, /*shared=*/true));
  EXPECT_EQ(Mode(directory_ / "p1_gcd0.conf"), 0644u);
  EXPECT_EQ(Mode(directory_ / "p1_gcd1.conf"), 0644u);
}

TEST_F(IpuofFilesTest, RewritingLeavesNoFileOfTheFormerLayout) {
  Write(Partition("p1", 4));
  Write(Partition("p1", 1));
  EXPECT_EQ(Names(), Strings({"p1.conf"}));
}

TEST_F(IpuofFilesTest, RemovalTakesTheFilesOfItsPartitionOnly) {
  Write(Partition("p1", 2));
  Write(Partition("p10", 1));
  Write(Partition("p1_gcd7", 1));
  Write(Partition("p1_gcdx", 1));
  EXPECT_TRUE(HasIpuofFiles("p1"));
  RemoveIpuofFiles("p1");
  EXPECT_FALSE(HasIpuofFiles("p1"));
  EXPECT_EQ(Names(), Strings({"p10.conf", "p1_gcd7.conf", "p1_gcdx.conf"}));
  RemoveIpuofFiles("p1");  // nothing left: no error
}

TEST_F(IpuofFilesTest, DirectoryCanBeNamed) {
  EXPECT_EQ(IpuofDirectory(), directory_.string());
  setenv("IPUOF_CONFIG_DIR", (home_ / "pod/conf").c_str(), 1);
  EXPECT_EQ(IpuofDirectory(), (home_ / "pod/conf").string());
  Write(Partition("p1", 1));
  EXPECT_TRUE(fs::exists(home_ / "pod/conf/p1.conf"));
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(IpuofFilesTest, DirectoryThatCannotBeIsAnError) {
  std::ofstream(home_ / "file") << "x";
  setenv("IPUOF_CONFIG_DIR", (home_ / "file/conf").c_str(), 1);
  const absl::Status status = WriteIpuofFiles(Partition("p1", 1), "h:1");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(status.message(),
            "cannot write to " + (home_ / "file/conf").string() + ", where the IPUoF file belongs");
}

TEST_F(IpuofFilesTest, ConfigPathWinsOverTheDirectory) {
  File("p1.conf", Config("p1"));
  setenv("IPUOF_CONFIG_PATH", File("other.txt", Config("p2", 1, 2)).c_str(), 1);
  const auto active = FindActivePartition();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->partition_id, "p2");
  EXPECT_EQ(active->gcd, 1u);
  EXPECT_EQ(active->num_gcds, 2u);
  EXPECT_EQ(active->generation, 17u);
  EXPECT_FALSE(active->gcd_was_given);
}

TEST_F(IpuofFilesTest, OfflineThereIsNoneWhateverFilesThereAre) {
  File("p1.conf", Config("p1"));
  setenv("IPUOF_CONFIG_PATH", File("other.txt", Config("p2", 1, 2)).c_str(), 1);
  setenv(kOfflineVariable, "1", 1);
  const auto active = FindActivePartition();
  unsetenv(kOfflineVariable);
  EXPECT_EQ(active.status(),
            absl::FailedPreconditionError("no IPUs: started by poprun --offline-mode"));
}

TEST_F(IpuofFilesTest, UnreadableConfigPathIsAnError) {
  const std::string missing = (home_ / "missing.conf").string();
  setenv("IPUOF_CONFIG_PATH", missing.c_str(), 1);
  EXPECT_EQ(FindActivePartition().status(),
            absl::InvalidArgumentError("cannot read " + missing + ": No such file or directory"));
  std::ofstream(missing) << "{";
  EXPECT_EQ(FindActivePartition().status(),
            absl::InvalidArgumentError(missing + ": not an IPUoF configuration: malformed JSON"));
}

TEST_F(IpuofFilesTest, OnlyFileOfTheDirectoryIsTaken) {
  File("any_name.conf", Config("p1"));
  std::ofstream(directory_ / "notes.txt") << "p1 is for the demo\n";
  const auto active = FindActivePartition();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->partition_id, "p1");
}

TEST_F(IpuofFilesTest, FilesMayHaveAnyNameButThatOfACopy) {
  for (const char* name : {"HOST.config", "ipu", "p64_cl_a01_a16.json"}) {
    SCOPED_TRACE(name);
    File(name, Config("p1"));
    for (const char* copy : {".p1.conf", "p1.conf~", "p1.new", "p1.conf.Xa12bC"})
      File(copy, Config("p2"));
    std::ofstream(directory_ / "README") << "{\"files\": \"of the site\"}\n";
    testing::internal::CaptureStderr();
    const auto active = FindActivePartition();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    ASSERT_TRUE(active.ok()) << active.status();
    EXPECT_EQ(active->partition_id, "p1");
    fs::remove_all(directory_);
  }
}

constexpr char kHowToChoose[] =
    "; choose one with IPUOF_VIPU_API_PARTITION_ID and IPUOF_VIPU_API_GCD_ID, or name its file "
    "with IPUOF_CONFIG_PATH";

TEST_F(IpuofFilesTest, TheChosenPartitionHasAnId) {
  File("p1.conf", Config("p1"));
  for (const char* host : {"", "127.0.0.1"}) {
    setenv("IPUOF_VIPU_API_HOST", host, 1);
    setenv("IPUOF_VIPU_API_PARTITION_ID", "a b", 1);
    EXPECT_EQ(FindActivePartition().status(),
              absl::InvalidArgumentError(
                  "IPUOF_VIPU_API_PARTITION_ID: Invalid id 'a b'. Ids have 1 to 63 letters, "
                  "digits, '.', '_' and '-' and begin with a letter or digit."));
  }
}

TEST_F(IpuofFilesTest, SeveralPartitionsNeedAChoice) {
  File("p1.conf", Config("p1"));
  File("p2.conf", Config("p2"));
  EXPECT_EQ(FindActivePartition().status(),
            absl::NotFoundError("2 IPUoF configurations in " + directory_.string() + kHowToChoose));
  EXPECT_EQ(FindGcdsToInspect().status(), FindActivePartition().status());
}

// Two files of one GCD may have different IPUs of it.
TEST_F(IpuofFilesTest, SeveralFilesOfOneGcdNeedAChoice) {
  File("p1.conf", Config("p1"));
  File("p1-copy.conf", Config("p1"));
  EXPECT_TRUE(absl::IsNotFound(FindGcdsToInspect().status()));
}

TEST_F(IpuofFilesTest, SeveralGcdsAreShownAndOneOfThemUsed) {
  File("p1_gcd0.conf", Config("p1", 0, 11));
  File("p1_gcd10.conf", Config("p1", 10, 11));
  File("p1_gcd1.conf", Config("p1", 1, 11));
  const auto gcds = FindGcdsToInspect();
  ASSERT_TRUE(gcds.ok()) << gcds.status();
  ASSERT_EQ(gcds->size(), 3u);
  EXPECT_EQ((*gcds)[1].gcd, 1u);
  EXPECT_EQ((*gcds)[2].gcd, 10u);
  EXPECT_EQ(FindActivePartition().status(),
            absl::NotFoundError(std::string("partition p1 has 3 GCDs") + kHowToChoose));
  setenv("IPUOF_VIPU_API_GCD_ID", "99", 1);
  EXPECT_EQ(
      FindActivePartition().status().message(),
      "no GCD '99' in " + directory_.string() + ", as IPUOF_VIPU_API_GCD_ID asks; GCDs: 0, 1, 10");
  setenv("IPUOF_VIPU_API_GCD_ID", "1", 1);
  const auto active = FindActivePartition();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->gcd, 1u);
  EXPECT_TRUE(active->gcd_was_given);
}

TEST_F(IpuofFilesTest, FileOfAControllerThatIsGoneIsSkippedWithAWarning) {
  Write(Partition("p1", 1));
  File("p2.conf", Config("p2"));
  testing::internal::CaptureStderr();
  const auto active = FindActivePartition();
  const std::string warning = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->partition_id, "p2");
  EXPECT_EQ(warning, "warning: " + (directory_ / "p1.conf").string() +
                         " skipped: its controller 127.0.0.1:1 does not answer\n");
}

TEST_F(IpuofFilesTest, WithoutAFileThatCountsTheReasonIsGiven) {
  if (fs::exists("/etc/ipuof.conf.d")) GTEST_SKIP() << "this machine has system files";
  Write(Partition("p1", 1));
  EXPECT_EQ(FindActivePartition().status(),
            absl::NotFoundError("no active partition: " + (directory_ / "p1.conf").string() +
                                " skipped: its controller 127.0.0.1:1 does not answer"));
}

TEST_F(IpuofFilesTest, AFileThatIsNoneDoesNotHideTheOthers) {
  const std::string broken = File("broken.conf", Config("p1"));
  std::ofstream(broken) << "{";
  File("p2.conf", Config("p2"));
  testing::internal::CaptureStderr();
  const auto active = FindActivePartition();
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: skipped: " + broken + ": not an IPUoF configuration: malformed JSON\n");
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->partition_id, "p2");
}

TEST_F(IpuofFilesTest, ThePodOfTheHomeIsForThoseWhoNameNoOther) {
  if (fs::exists("/etc/ipuof.conf.d")) GTEST_SKIP() << "this machine has system files";
  fs::create_directories(home_ / ".vpod/ipuof.conf.d");
  std::ofstream(home_ / ".vpod/ipuof.conf.d/p1.conf") << IpuofJson(Config("p1"));
  ASSERT_TRUE(FindActivePartition().ok());
  setenv("IPUOF_CONFIG_DIR", (home_ / "empty").c_str(), 1);
  EXPECT_EQ(FindActivePartition().status().code(), absl::StatusCode::kNotFound);
  unsetenv("IPUOF_CONFIG_DIR");
  setenv("VPOD_HOME", (home_ / "other").c_str(), 1);
  EXPECT_EQ(FindActivePartition().status().code(), absl::StatusCode::kNotFound);
  setenv("VPOD_HOME", (home_ / ".vpod").c_str(), 1);
  EXPECT_TRUE(FindActivePartition().ok());
  unsetenv("VPOD_HOME");
}

TEST_F(IpuofFilesTest, ThePartitionCanBeNamed) {
  File("p1.conf", Config("p1"));
  File("p2.conf", Config("p2"));
  setenv("IPUOF_VIPU_API_PARTITION_ID", "p2", 1);
  const auto active = FindActivePartition();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->partition_id, "p2");
}

// A controller that has p1, of one GCD.
class ControllerOfP1 : public FakeController {
 public:
  explicit ControllerOfP1(vipuuser::PartitionState state) {
    vipuuser::GetPartitionStatusReply status;
    status.mutable_status()->set_state(state);
    Answer("GetPartitionStatus", {&status});
    vipuuser::GetPartitionIpuofConfigReply config;
    *config.mutable_ipuof_config() = Config("p1");
    (*config.mutable_ipuof_config()->mutable_attributes())["Partition generation"] = "18";
    Answer("GetPartitionIpuofConfig", {&config});
    vipuuser::GetPartitionReply partition;
    *partition.mutable_partition() = Partition("p1", 2);
    Answer("GetPartition", {&partition});
  }
};

TEST_F(IpuofFilesTest, FileIsRenewedByItsController) {
  ControllerOfP1 controller(vipuuser::PS_ACTIVE);
  ASSERT_TRUE(WriteIpuofFiles(Partition("p1", 1), controller.address()).ok());
  const auto active = FindActivePartition();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->generation, 18u);
  EXPECT_EQ(active->controller, controller.address());
  EXPECT_EQ(active->file, (directory_ / "p1.conf").string());
}

// The IPUs that a container manager gave away are not those that the controller would give.
TEST_F(IpuofFilesTest, RenewalKeepsToTheIpusOfTheFile) {
  ControllerOfP1 controller(vipuuser::PS_ACTIVE);
  vipuuser::Partition partition = Partition("p1", 1);
  (*partition.mutable_gcds(0)->mutable_attributes())[kGcdIpus] = "2";
  partition.mutable_gcds(0)->mutable_devices()->DeleteSubrange(0, 1);
  ASSERT_TRUE(WriteIpuofFiles(partition, controller.address()).ok());
  const auto active = FindActivePartition();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->generation, 18u);
  EXPECT_EQ(active->gcd_ipus, 2u);
  ASSERT_EQ(active->config.devices_size(), 1);
  EXPECT_EQ(active->config.devices(0).routing_id(), 1u);
  // The GCD has become smaller.
  vipuuser::GetPartitionIpuofConfigReply reply;
  *reply.mutable_ipuof_config() = Config("p1");
  reply.mutable_ipuof_config()->mutable_devices()->RemoveLast();
  controller.Answer("GetPartitionIpuofConfig", {&reply});
  EXPECT_EQ(FindActivePartition().status(),
            absl::FailedPreconditionError("the IPUoF configuration has 1 IPU, of which 0 are "
                                          "still in partition p1"));
}

TEST_F(IpuofFilesTest, TheControllerShowsAllGcds) {
  ControllerOfP1 controller(vipuuser::PS_ACTIVE);
  controller.Answer("GetPartitionIpuofConfig", {}, absl::InvalidArgumentError("give a GCD id"));
  setenv("IPUOF_VIPU_API_HOST", controller.address().c_str(), 1);
  setenv("IPUOF_VIPU_API_PARTITION_ID", "p1", 1);
  const auto gcds = FindGcdsToInspect();
  ASSERT_TRUE(gcds.ok()) << gcds.status();
  ASSERT_EQ(gcds->size(), 2u);
  EXPECT_EQ((*gcds)[1].gcd, 1u);
  EXPECT_EQ(FindActivePartition().status(),
            absl::NotFoundError(std::string("partition p1 has 2 GCDs") + kHowToChoose));
}

TEST_F(IpuofFilesTest, NamedPartitionWithoutAFileIsAskedOfTheController) {
  ControllerOfP1 controller(vipuuser::PS_ACTIVE);
  std::ofstream(File("broken.conf", Config("p2"))) << "{";
  setenv("VIPU_CLI_API_HOST", controller.address().c_str(), 1);
  setenv("IPUOF_VIPU_API_PARTITION_ID", "p1", 1);
  const auto active = FindActivePartition();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->generation, 18u);
  EXPECT_EQ(active->controller, controller.address());
}

TEST_F(IpuofFilesTest, SharedFileServesThoseWithoutAnAccountToo) {
  ControllerOfP1 controller(vipuuser::PS_ACTIVE);
  controller.Answer("GetPartitionStatus", {}, absl::PermissionDeniedError("not yours"));
  ASSERT_TRUE(WriteIpuofFiles(Partition("p1", 1, /*shared=*/true), controller.address()).ok());
  const auto active = FindActivePartition();
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(active->generation, 17u);
  EXPECT_EQ(active->controller, controller.address());
  EXPECT_EQ(active->file, (directory_ / "p1.conf").string());
}

TEST_F(IpuofFilesTest, WhatOthersMayReadHasNoKey) {
  vipuuser::Partition partition = Partition("p1", 1, /*shared=*/true);
  partition.mutable_gcds(0)->set_fabric_key("secret");
  ASSERT_TRUE(WriteIpuofFiles(partition, "h:1").ok());
  EXPECT_EQ(base::ReadFile((directory_ / "p1.conf").string()).find("secret"), std::string::npos);
  partition.mutable_requirements()->set_shared(false);
  ASSERT_TRUE(WriteIpuofFiles(partition, "h:1").ok());
  EXPECT_NE(base::ReadFile((directory_ / "p1.conf").string()).find("secret"), std::string::npos);
  EXPECT_EQ(Mode(directory_ / "p1.conf"), 0600u);
}

TEST_F(IpuofFilesTest, AFifoAmongTheFilesIsSkipped) {
  fs::create_directories(directory_);
  ASSERT_EQ(mkfifo((directory_ / "pipe.conf").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((directory_ / "p1_gcd9.conf").c_str(), 0600), 0);
  EXPECT_FALSE(HasIpuofFiles("p1"));
  EXPECT_TRUE(absl::IsNotFound(FindActivePartition().status()));
}

TEST_F(IpuofFilesTest, PartitionThatIsNotActiveIsSaidToBeSoHoweverItIsNamed) {
  ControllerOfP1 controller(vipuuser::PS_ERROR);
  ASSERT_TRUE(WriteIpuofFiles(Partition("p1", 1), controller.address()).ok());
  const absl::Status expected =
      absl::FailedPreconditionError("partition is not ACTIVE: p1 (state PS_ERROR)");
  EXPECT_EQ(FindActivePartition().status(), expected);
  setenv("IPUOF_VIPU_API_HOST", controller.address().c_str(), 1);
  setenv("IPUOF_VIPU_API_PARTITION_ID", "p1", 1);
  EXPECT_EQ(FindActivePartition().status(), expected);
}

TEST_F(IpuofFilesTest, PartitionInErrorCanBeInspected) {
  ControllerOfP1 controller(vipuuser::PS_ERROR);
  setenv("IPUOF_VIPU_API_HOST", controller.address().c_str(), 1);
  setenv("IPUOF_VIPU_API_PARTITION_ID", "p1", 1);
  const absl::Status reason =
      absl::FailedPreconditionError("partition is not ACTIVE: p1 (state PS_ERROR)");
  EXPECT_EQ(FindPartitionToInspect().status(), reason);  // which of its GCDs?
  setenv("IPUOF_VIPU_API_GCD_ID", "1", 1);
  const auto found = FindPartitionToInspect();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->partition_id, "p1");
  EXPECT_EQ(found->gcd, 1u);
  EXPECT_EQ(found->usable, reason);
}

TEST_F(IpuofFilesTest, NothingAtAllSaysWhatToDo) {
  if (fs::exists("/etc/ipuof.conf.d")) GTEST_SKIP() << "this machine has system files";
  EXPECT_EQ(FindActivePartition().status(),
            absl::NotFoundError("no active partition, set IPUOF_VIPU_API_PARTITION_ID or create "
                                "one with 'vipu create partition'"));
}

}  // namespace
}  // namespace vpod::vipu
