#include "client/gcipuinfo/gcipuinfo.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

namespace {

namespace fs = std::filesystem;

// Words of the key in capitals, parentheses left out.
std::string CamelCase(const std::string& key) {
  std::string name;
  bool start = true;
  for (const char c : key) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      name += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start = c == ' ' || c == '(';
  }
  return name;
}

TEST(Labels, AreTheWordsOfTheirKeys) {
  std::set<std::string> keys;
#define CHECK_LABEL(name, key)        \
  EXPECT_EQ(CamelCase(key), #name);   \
  EXPECT_STREQ(gcipuinfo::name, key); \
  EXPECT_TRUE(keys.insert(key).second) << key;
  GCIPUINFO_FOR_EACH_LABEL(CHECK_LABEL)
#undef CHECK_LABEL
  for (const char* key : {"ipu power", "board type", "ipu utilisation (session)",
                          "average die temp", "user process id", "hexopt total size (bytes)"})
    EXPECT_TRUE(keys.contains(key)) << key;
}

// Without a partition, whatever the caller's environment is.
class WithoutPartition : public testing::Test {
 protected:
  WithoutPartition() : directory_(fs::path(testing::TempDir()) / "gcipuinfo") {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    setenv("HOME", directory_.c_str(), 1);
    setenv("IPUOF_CONFIG_PATH", (directory_ + "/none.conf").c_str(), 1);
  }
  ~WithoutPartition() override { fs::remove_all(directory_); }

  const std::string directory_;
};

TEST_F(WithoutPartition, ThereAreNoDevicesAndTheHealthCheckSaysWhy) {
  gcipuinfo info;
  EXPECT_TRUE(info.getDevices().empty());
  EXPECT_EQ(info.getDevicesAsJSON(), "[]");
  EXPECT_TRUE(info.getNamedAttributeForAll(gcipuinfo::IpuPower).empty());
  EXPECT_EQ(info.getNamedAttributeForDevice(0, gcipuinfo::IpuPower), "N/A");
  EXPECT_FALSE(info.updateData());
  const auto health = nlohmann::json::parse(info.checkHealthOfDevices());
  EXPECT_NE(health.at("error").get<std::string>().find("none.conf"), std::string::npos) << health;
}

TEST_F(WithoutPartition, TheModesCannotBeMixed) {
  const gcipuinfo first;
  gcipuinfo other(gcipuinfo::DiscoverAllPartitionIPUs);
  EXPECT_TRUE(other.getDevices().empty());
  EXPECT_NE(other.checkHealthOfDevices().find("cannot be mixed"), std::string::npos)
      << other.checkHealthOfDevices();
}

TEST_F(WithoutPartition, EventRecordsAreReadFromTheNamedDirectory) {
  const gcipuinfo info;
  setenv("IPU_APP_EVENT_RECORD_PATH", directory_.c_str(), 1);
  EXPECT_TRUE(info.getLastAppEventRecord().empty());
  EXPECT_EQ(info.getLastAppEventRecordAsJSON(), "{}");
  ASSERT_TRUE(vpod::ipuof::WriteEventRecord(directory_, gcipuinfo::EventSeverity::kWarning,
                                            {{gcipuinfo::keyPartition, "p1"}})
                  .ok());
  EXPECT_EQ(info.getLastAppEventRecord()[gcipuinfo::keyPartition], "p1");
  EXPECT_EQ(info.getLastAppEventRecord(directory_)[gcipuinfo::keySeverity], "Warning");
  const auto json = nlohmann::json::parse(info.getLastAppEventRecordAsJSON(directory_));
  EXPECT_EQ(json.at("partition"), "p1");
  std::ofstream(directory_ + "/ipu_app_event_record.json") << "?";
  EXPECT_TRUE(info.getLastAppEventRecord().contains("error"));
  unsetenv("IPU_APP_EVENT_RECORD_PATH");
}

}  // namespace
