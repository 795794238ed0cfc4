#include "client/launch/config_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "client/launch/options.h"
#include "device/base/file.h"

namespace vpod::launch {
namespace {

using Words = std::vector<std::string>;

class ConfigFileTest : public testing::Test {
 protected:
  ConfigFileTest()
      : path_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".json") {
    std::remove(path_.c_str());
  }

  void Write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string Read() const { return base::ReadFile(path_); }
  GivenOptions Given(Words words) const {
    words.push_back("app");
    const auto options = ParseOptions(words);
    EXPECT_TRUE(options.ok()) << options.status();
    return options.ok() ? options->given : GivenOptions();
  }
  std::string ImportError(const std::string& text) const {
    Write(text);
    const auto options = ParseOptions({"--import-config", path_, "app"});
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(options.status().message());
  }

  const std::string path_;
};

TEST_F(ConfigFileTest, EveryOptionComesBackAsItWasGiven) {
  const GivenOptions given =
      Given({"--host=h[01-04]", "--num-replicas=16", "--num-instances=4", "--ipus-per-replica=2",
             "--num-ilds=2", "--vipu-server-host=10.1.3.101", "--vipu-partition=p",
             "--update-partition", "--sync-type=ST_C2_COMPATIBLE", "--process-placement=disabled",
             "--launch-agent=/opt/agent -q", "--mpi-global-args=--tag-output",
             "--mpi-global-args= --mca oob_tcp_if_include \"10.5.0.0/16\"",
             "--mpi-local-args=-x A='b c'", "--only-output-from-instance=0", "-vv"});
  ASSERT_TRUE(ExportConfig(path_, false, given).ok());
  GivenOptions imported = Given({"--import-config", path_});
  imported.erase("import-config");
  EXPECT_EQ(imported, given);
  // And out again, without a trace of the way.
  const std::string text = Read();
  ASSERT_TRUE(ExportConfig(path_, true, Given({"--import-config", path_})).ok());
  EXPECT_EQ(Read(), text);
}

TEST_F(ConfigFileTest, FileIsAnObjectOfStringsAndArrays) {
  ASSERT_TRUE(ExportConfig(path_, false,
                           {{"num-replicas", {"2"}},
                            {"offline-mode", {"1"}},
                            {"export-config", {"x"}},
                            {"overwrite-config", {"1"}},
                            {"mpi-global-args", {"--tag-output", "--mca a b"}}})
                  .ok());
  EXPECT_EQ(Read(), R"({
  "mpi-global-args": [
    "--tag-output",
    "--mca a b"
  ],
  "num-replicas": "2",
  "offline-mode": "1"
}
)");
}

TEST_F(ConfigFileTest, AnExistingFileIsReplacedOnlyWhenAllowed) {
  Write("mine");
  EXPECT_EQ(ExportConfig(path_, false, {}).message(),
            "--export-config: " + path_ + " exists; --overwrite-config=yes replaces it");
  EXPECT_EQ(Read(), "mine");
  EXPECT_TRUE(ExportConfig(path_, true, {}).ok());
  EXPECT_EQ(Read(), "{}\n");
  EXPECT_EQ(ExportConfig("/no/such/folder/x", false, {}).message(),
            "--export-config: cannot write /no/such/folder/x: No such file or directory");
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_EQ(ExportConfig(folder, true, {}).message(),
            "--export-config: " + folder + " is a directory");
}

TEST_F(ConfigFileTest, CommandLineWins) {
  Write(R"({"num-replicas": "8", "num-instances": "4", "mpi-global-args": ["--a", "--b"]})");
  const GivenOptions given =
      Given({"--num-instances=2", "--mpi-global-args=--c", "--import-config", path_});
  EXPECT_EQ(given.at("num-replicas"), Words({"8"}));
  EXPECT_EQ(given.at("num-instances"), Words({"2"}));
  EXPECT_EQ(given.at("mpi-global-args"), Words({"--c"}));
}

TEST_F(ConfigFileTest, CommandLineWinsOverWhatItExcludes) {
  Write(R"({"hostfile": "hosts", "process-placement": "spreadnuma"})");
  GivenOptions given = Given({"--host=h0", "--numa-aware=no", "--import-config", path_});
  EXPECT_FALSE(given.contains("hostfile"));
  EXPECT_FALSE(given.contains("process-placement"));
  Write(R"({"host": "h0"})");
  given = Given({"--hostfile=hosts", "--import-config", path_});
  EXPECT_FALSE(given.contains("host"));
}

TEST_F(ConfigFileTest, BadFilesAreRefused) {
  for (const char* text : {"", "[1]", "{", "\"x\""})
    EXPECT_EQ(ImportError(text), "--import-config: " + path_ + " is not a JSON object of options");
  EXPECT_EQ(ImportError(R"({"num-replicas": 8})"),
            "--import-config: option 'num-replicas' is not a string");
  EXPECT_EQ(ImportError(R"({"mpi-local-args": ["-x A", 1]})"),
            "--import-config: option 'mpi-local-args' is not a string");
  EXPECT_EQ(ImportError(R"({"no-such-option": "1"})"),
            "--import-config: unrecognised option '--no-such-option'");
  EXPECT_EQ(ImportError(R"({"num-rep": "1"})"),
            "--import-config: unrecognised option '--num-rep'");  // names in full
  EXPECT_EQ(ImportError(R"({"export-config": "x"})"),
            "--import-config: option '--export-config' belongs on the command line");
  EXPECT_EQ(ImportError(R"({"num-replicas": "x"})"),
            "the argument ('x') for option '--num-replicas' is invalid. Give an integer from 1 to "
            "65536");
  const std::string folder = testing::TempDir();
  EXPECT_EQ(ParseOptions({"--import-config", folder, "app"}).status().message(),
            "--import-config: cannot read " + folder + ": it is a directory");
  const absl::Status missing =
      ParseOptions({"--import-config", path_ + ".missing", "app"}).status();
  EXPECT_EQ(missing.message(),
            "--import-config: cannot read " + path_ + ".missing: No such file or directory");
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
}

}  // namespace
}  // namespace vpod::launch
