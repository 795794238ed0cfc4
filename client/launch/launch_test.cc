// poprun without a server: its errors, its exit status and what it prints. A script stands for
// mpirun.
#include "client/launch/launch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace vpod::launch {
namespace {

namespace fs = std::filesystem;

class PoprunTest : public testing::Test {
 protected:
  PoprunTest()
      : home_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(home_);
    fs::create_directories(home_);
    setenv("HOME", home_.c_str(), 1);
    for (const char* name : {"POPRUN_LOG_LEVEL", "SLURM_JOB_NODELIST", "IPUOF_VIPU_API_HOST",
                             "VIPU_CLI_API_HOST", "VIPU_CLI_CONFIG", "POPLAR_TARGET_OPTIONS",
                             "POPRUN_MPIRUN", "POPRUN_LAUNCH_AGENT", "VPOD_OFFLINE"})
      unsetenv(name);
  }
  ~PoprunTest() override { fs::remove_all(home_); }

  // Installs a mpirun that runs `script`.
  void Mpirun(const std::string& script) const {
    const fs::path path = home_ / "mpirun";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
    setenv("POPRUN_MPIRUN", path.c_str(), 1);
  }
  int Run(const std::vector<std::string>& words) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = Poprun(words);
    out_ = testing::internal::GetCapturedStdout();
    error_ = testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path home_;
  std::string out_, error_;
};

TEST_F(PoprunTest, WrongUsageExitsWithTwo) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_EQ(error_,
            "poprun: error: no program given; usage: poprun [options] program [program args]\n");
  EXPECT_EQ(Run({"--foo", "true"}), 2);
  EXPECT_EQ(error_, "poprun: error: unrecognised option '--foo'\n");
  EXPECT_EQ(Run({"--num-instances=8", "--num-replicas=4", "true"}), 2);
  EXPECT_EQ(error_, "poprun: error: --num-instances (8) must not exceed --num-replicas (4)\n");
  EXPECT_EQ(out_, "");
}

TEST_F(PoprunTest, OneMachineUnderTwoNamesIsRefused) {
  EXPECT_EQ(Run({"--offline-mode=on", "--host=127.0.0.2,localhost,127.0.0.1", "--num-instances=3",
                 "--num-replicas=3", "true"}),
            2);
  EXPECT_EQ(error_, "poprun: error: hosts 'localhost' and '127.0.0.1' are both this machine\n");
}

TEST_F(PoprunTest, MissingProgramFileExitsWithOne) {
  EXPECT_EQ(Run({"--offline-mode=on", "no-such-app"}), 1);
  EXPECT_EQ(error_, "poprun: error: cannot find program 'no-such-app' in PATH\n");
  EXPECT_EQ(Run({"--offline-mode=on", "/no/such/app"}), 1);
  EXPECT_EQ(error_, "poprun: error: program '/no/such/app' is not executable\n");
}

TEST_F(PoprunTest, UnreachableServerExitsWithOne) {
  EXPECT_EQ(Run({"--vipu-server-host=127.0.0.1", "--vipu-server-port=1", "true"}), 1);
  EXPECT_EQ(error_.rfind("poprun: error: cannot reach the V-IPU server at 127.0.0.1:1: ", 0), 0u)
      << error_;
}

TEST_F(PoprunTest, MissingMpirunExitsWithOne) {
  setenv("POPRUN_MPIRUN", "/no/such/mpirun", 1);
  EXPECT_EQ(Run({"--offline-mode=on", "true"}), 1);
  EXPECT_EQ(error_, "poprun: error: cannot start mpirun: cannot find '/no/such/mpirun'\n");
  // Before anything is asked of the server, which is not there either.
  EXPECT_EQ(Run({"--vipu-server-host=127.0.0.1:1", "--mpirun=no-mpirun", "true"}), 1);
  EXPECT_EQ(error_, "poprun: error: cannot start mpirun: cannot find 'no-mpirun'\n");
}

TEST_F(PoprunTest, MissingLaunchAgentExitsWithOne) {
  Mpirun("exit 0");
  EXPECT_EQ(Run({"--offline-mode=on", "--host=h1", "--launch-agent=/no/agent -q", "true"}), 1);
  EXPECT_EQ(error_, "poprun: error: cannot find launch agent '/no/agent -q'\n");
  EXPECT_EQ(Run({"--offline-mode=on", "--host=h1", "--launch-agent=env -i", "true"}), 0) << error_;
}

// 203.0.113.0/24 is for documentation and nobody's.
TEST_F(PoprunTest, ServerAtALoopbackAddressIsNoneForOtherHosts) {
  Mpirun("exit 0");
  EXPECT_EQ(Run({"--vipu-server-host=127.0.0.1:1", "--host=127.0.0.1,203.0.113.7",
                 "--num-instances=2", "--num-replicas=2", "true"}),
            1);
  EXPECT_EQ(error_,
            "poprun: error: the V-IPU server is at 127.0.0.1:1, which host 203.0.113.7 cannot "
            "reach; give --vipu-server-host an address of the network\n");
}

TEST_F(PoprunTest, OfflineProgramsAreToldThatThereAreNoIpus) {
  setenv("IPUOF_CONFIG_PATH", "/no/such/file", 1);
  setenv("IPUOF_VIPU_API_PARTITION_ID", "p1", 1);
  Mpirun("env | grep -E '^(IPUOF_|VPOD_OFFLINE)' >&2; exit 0");
  EXPECT_EQ(Run({"--offline-mode=on", "true"}), 0);
  EXPECT_EQ(error_, "VPOD_OFFLINE=1\n");
}

TEST_F(PoprunTest, CodeOfMpirunIsReturnedUnchanged) {
  for (const int code : {0, 7, 137, 255}) {
    Mpirun("exit " + std::to_string(code));
    EXPECT_EQ(Run({"--offline-mode=on", "true"}), code);
    EXPECT_EQ(out_ + error_, "");  // without -v only warnings and errors
  }
}

TEST_F(PoprunTest, VeryVerboseShowsTopologyAndCommand) {
  Mpirun("exit 3");
  EXPECT_EQ(Run({"-vv", "--offline-mode=on", "--num-replicas=2", "true", "a b"}), 3);
  EXPECT_EQ(out_.rfind(" =", 0), 0u) << out_;
  EXPECT_NE(out_.find("poprun topology"), std::string::npos);
  EXPECT_NE(error_.find(" POPRUN [D] No hosts specified; ignoring host-subnet setting\n"),
            std::string::npos)
      << error_;
  EXPECT_NE(error_.find(" POPRUN [D] Default network/RNIC for host communication: None\n"),
            std::string::npos);
  EXPECT_NE(error_.find(" POPRUN [I] Running command: " + (home_ / "mpirun").string() +
                        " '--bind-to' 'none' '--tag-output' "),
            std::string::npos);
  EXPECT_NE(error_.find(" 'true' 'a b'\n"), std::string::npos);
  EXPECT_NE(error_.find(" POPRUN [I] Waiting for mpirun (PID "), std::string::npos);
  EXPECT_NE(error_.find(" terminated with exit code 3\n"), std::string::npos);
}

TEST_F(PoprunTest, TopologyIsPrintedOnRequest) {
  Mpirun("exit 0");
  EXPECT_EQ(Run({"--print-topology=yes", "--offline-mode=on", "true"}), 0);
  EXPECT_NE(out_.find("| poprun top... |"), std::string::npos) << out_;
  EXPECT_EQ(error_, "");
}

TEST_F(PoprunTest, OutputOfOtherInstancesIsHidden) {
  Mpirun(
      "printf '[1,0]<stdout>:mine\\n[1,1]<stdout>:other\\n'\n"
      "printf '[1,1]<stderr>:bad\\nmpirun says\\n' >&2");
  EXPECT_EQ(Run({"--only-output-from-instance=0", "--offline-mode=on", "--num-instances=2",
                 "--num-replicas=2", "true"}),
            0);
  EXPECT_EQ(out_, "[1,0]<stdout>:mine\n");
  EXPECT_EQ(error_, "mpirun says\n");
}

TEST_F(PoprunTest, ConfigurationIsExportedOnceUnlessAllowed) {
  Mpirun("exit 0");
  const std::string path = (home_ / "poprun.json").string();
  EXPECT_EQ(Run({"--export-config", path, "--offline-mode=on", "--num-replicas=2",
                 "--mpi-global-args=--tag-output", "--mpi-global-args=--mca a b", "true"}),
            0);
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file),
            (nlohmann::json{{"offline-mode", "on"},
                            {"num-replicas", "2"},
                            {"mpi-global-args", {"--tag-output", "--mca a b"}}}));
  EXPECT_EQ(Run({"--export-config", path, "--offline-mode=on", "true"}), 2);
  EXPECT_EQ(error_, "poprun: error: --export-config: " + path +
                        " exists; --overwrite-config=yes replaces it\n");
  EXPECT_EQ(Run({"--export-config", path, "--overwrite-config=1", "--offline-mode=on", "true"}), 0);
  EXPECT_EQ(Run({"--import-config", path, "true"}), 0);  // offline by the file
}

TEST_F(PoprunTest, HelpAndVersionGoToStdout) {
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_EQ(out_.rfind("Usage: poprun [options] program [program args]\n", 0), 0u) << out_;
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_EQ(out_,
            "POPRUN version 3.2.0 (virtual IPU-POD)\nPOPDIST version 3.2.0 (virtual IPU-POD)\n");
  EXPECT_EQ(Run({"--version", "--version-format=full-text"}), 0);
  EXPECT_NE(out_.find("\ngRPC version 1."), std::string::npos) << out_;
  EXPECT_EQ(Run({"--version", "--version-format", "full-json"}), 0);
  const auto versions = nlohmann::json::parse(out_);
  EXPECT_EQ(versions["POPRUN"], "3.2.0 (virtual IPU-POD)");
  EXPECT_TRUE(versions.contains("Protobuf"));
}

}  // namespace
}  // namespace vpod::launch
