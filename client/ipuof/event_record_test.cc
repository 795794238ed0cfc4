#include "client/ipuof/event_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace vpod::ipuof {
namespace {

namespace fs = std::filesystem;

class EventRecordTest : public testing::Test {
 protected:
  EventRecordTest()
      : directory_(fs::path(testing::TempDir()) /
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~EventRecordTest() override { fs::remove_all(directory_); }

  void Write(EventSeverity severity, const std::string& description) {
    const auto status =
        WriteEventRecord(directory_, severity, {{event_key::kDescription, description}});
    EXPECT_TRUE(status.ok()) << status;
  }
  std::string Description() {
    const auto record = ReadEventRecord(directory_);
    EXPECT_TRUE(record.ok()) << record.status();
    const auto it = record->find(event_key::kDescription);
    return it == record->end() ? "(none)" : it->second;
  }

  const std::string directory_;
};

TEST_F(EventRecordTest, HasTheDocumentedKeysInOneFile) {
  const auto status = WriteEventRecord(directory_, EventSeverity::kError,
                                       {{event_key::kAttachedIpus, "0,1"},
                                        {event_key::kSpecificIpus, "1"},
                                        {event_key::kAttachedIpuHosts, "10.1.5.10"},
                                        {event_key::kSpecificIpuHosts, "10.1.5.10"},
                                        {event_key::kPartition, "p1"},
                                        {event_key::kDescription, "it broke"}});
  ASSERT_TRUE(status.ok()) << status;
  std::ifstream file(directory_ + "/ipu_app_event_record.json");
  const auto json = nlohmann::json::parse(file);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) {
    keys.push_back(key);
    EXPECT_TRUE(value.is_string()) << key;
  }
  EXPECT_THAT(keys, testing::UnorderedElementsAre(
                        "event record path", "timestamp", "severity", "command line", "pid",
                        "attached ipus", "specific ipus", "attached ipu hosts",
                        "specific ipu hosts", "partition", "description"));
  EXPECT_EQ(json["severity"], "Error");
  EXPECT_EQ(json["pid"], std::to_string(getpid()));
  EXPECT_EQ(json["event record path"], directory_ + "/ipu_app_event_record.json");
  EXPECT_THAT(json["timestamp"].get<std::string>(), testing::MatchesRegex("[0-9]{8}T[0-9]{6}Z"));
  EXPECT_THAT(json["command line"].get<std::string>(), testing::HasSubstr("event_record_test"));
  // Nothing else is left behind.
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(EventRecordTest, IsReplacedByEqualOrHigherSeverityOnly) {
  EXPECT_EQ(Description(), "(none)");
  Write(EventSeverity::kInfo, "first");
  Write(EventSeverity::kInfo, "second");
  EXPECT_EQ(Description(), "second");
  Write(EventSeverity::kFatal, "fatal");
  EXPECT_EQ(Description(), "fatal");
  for (const auto severity :
       {EventSeverity::kInfo, EventSeverity::kWarning, EventSeverity::kError}) {
    Write(severity, "lower");
    EXPECT_EQ(Description(), "fatal");
  }
  Write(EventSeverity::kFatal, "fatal again");
  EXPECT_EQ(Description(), "fatal again");
}

TEST_F(EventRecordTest, ADamagedRecordIsNamedAndReplaced) {
  std::ofstream(directory_ + "/" + kRecordFile) << "{\"severity\": ";
  EXPECT_EQ(ReadEventRecord(directory_).status().code(), absl::StatusCode::kDataLoss);
  Write(EventSeverity::kInfo, "sound");
  EXPECT_EQ(Description(), "sound");
}

TEST_F(EventRecordTest, AFileIsReadAsItsDirectoryIs) {
  Write(EventSeverity::kInfo, "here");
  const auto record = ReadEventRecord(directory_ + "/" + kRecordFile);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->at(event_key::kDescription), "here");
}

TEST_F(EventRecordTest, AMissingDirectoryIsAnError) {
  const auto status = WriteEventRecord(directory_ + "/none", EventSeverity::kInfo, {});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(directory_ + "/none"));
}

TEST_F(EventRecordTest, OfManyWritersTheMostSevereStays) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 8; ++writer) {
    writers.emplace_back([this, writer] {
      for (int i = 0; i < 20; ++i)
        Write(writer == 3 && i == 10 ? EventSeverity::kFatal : EventSeverity::kError,
              writer == 3 && i == 10 ? "the cause" : "follows");
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(Description(), "the cause");
}

}  // namespace
}  // namespace vpod::ipuof
