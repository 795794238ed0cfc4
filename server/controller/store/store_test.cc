#include "server/controller/store/store.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"
#include "server/controller/store/state.pb.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;
using Mode = Store::OpenMode;
using Objects = std::map<std::string, std::string>;

absl::Status Put(Store& store, const std::string& kind, const std::string& id,
                 const std::string& data) {
  return store.Commit({{kind, id, data}});
}

absl::Status Remove(Store& store, const std::string& kind, const std::string& id) {
  return store.Commit({{kind, id, std::nullopt}});
}

class StoreTest : public testing::Test {
 protected:
  static constexpr size_t kPageBytes = 4096;

  StoreTest()
      : directory_(fs::path(testing::TempDir()) /
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    path_ = (directory_ / "vipu-server.db").string();
  }
  ~StoreTest() override { fs::remove_all(directory_); }

  std::unique_ptr<Store> Open() {
    auto store = Store::Open(path_, Mode::kOpenOrCreate);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  std::string Bytes() const { return base::ReadFile(path_); }
  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  // Runs SQL on the file as another program would.
  void Sql(const char* sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  // Fills many pages, and closes the store.
  void WriteManyObjects() {
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    for (int i = 0; i < 200; ++i)
      ASSERT_TRUE(Put(*store, "agent", std::to_string(i), std::string(300, 'x')).ok());
  }
  // Overwrites the bytes of the file from there on.
  void DamageFrom(size_t begin) const {
    std::string bytes = Bytes();
    ASSERT_GT(bytes.size(), 2 * kPageBytes);
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(begin), bytes.end(), '\x7f');
    Write(bytes);
  }
  // The file is refused with the code, and stays as it is.
  std::string RefusedUntouched(absl::StatusCode code) {
    const std::string before = Bytes();
    const auto store = Store::Open(path_, Mode::kOpenOrCreate);
    EXPECT_EQ(store.status().code(), code) << store.status();
    EXPECT_TRUE(Bytes() == before) << "the file was changed";
    return std::string(store.status().message());
  }
  // The file is refused because its contents are wrong, and stays as it is.
  void ExpectUntrusted(const std::string& why) {
    EXPECT_EQ(
        RefusedUntouched(absl::StatusCode::kDataLoss),
        absl::StrCat("storage ", path_, " cannot be trusted: ", why, ". Nothing was changed"));
  }

  fs::path directory_;
  std::string path_;
};

TEST_F(StoreTest, ObjectsAreThereAfterReopening) {
  {
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(Put(*store, "agent", "ag1", "first").ok());
    EXPECT_TRUE(Put(*store, "agent", "ag2", std::string("\0binary\xff", 8)).ok());
    EXPECT_TRUE(Put(*store, "cluster", "ag1", "other kind").ok());
    EXPECT_TRUE(Put(*store, "agent", "ag3", "").ok());
    EXPECT_TRUE(Put(*store, "agent", "ag1", "second").ok());
    EXPECT_TRUE(Remove(*store, "agent", "ag3").ok());
  }
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(*store->Load("agent"),
            (Objects{{"ag1", "second"}, {"ag2", std::string("\0binary\xff", 8)}}));
  EXPECT_EQ(*store->Load("cluster"), (Objects{{"ag1", "other kind"}}));
  EXPECT_EQ(*store->Load("partition"), Objects());
}

TEST_F(StoreTest, ChangesAreCommittedTogetherOrNotAtAll) {
  {
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(Put(*store, "agent", "ag1", "old").ok());
    EXPECT_TRUE(
        store
            ->Commit(
                {{"agent", "ag1", std::nullopt}, {"agent", "ag2", "new"}, {"cluster", "c1", "new"}})
            .ok());
    EXPECT_TRUE(store->Commit({}).ok());
  }
  // A second change that the database refuses takes the first with it.
  Sql("CREATE TRIGGER full BEFORE INSERT ON objects WHEN NEW.id = 'bad'"
      " BEGIN SELECT RAISE(ABORT, 'refused'); END;");
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_FALSE(store->Commit({{"agent", "ag3", "new"}, {"agent", "bad", "new"}}).ok());
  EXPECT_TRUE(Put(*store, "agent", "ag4", "new").ok());
  EXPECT_EQ(*store->Load("agent"), (Objects{{"ag2", "new"}, {"ag4", "new"}}));
  EXPECT_EQ(*store->Load("cluster"), (Objects{{"c1", "new"}}));
}

TEST_F(StoreTest, OnlyTheOwnerReadsIt) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(Put(*store, "user", "alice", "hash").ok());
  for (const char* file : {"", "-wal"}) {
    EXPECT_EQ(fs::status(path_ + file).permissions(),
              fs::perms::owner_read | fs::perms::owner_write)
        << file;
  }
}

TEST_F(StoreTest, RemovingAMissingObjectIsNotAnError) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(Remove(*store, "agent", "nobody").ok());
}

TEST_F(StoreTest, CommittedObjectsSurviveAProcessThatNeverCloses) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(Put(*store, "agent", "ag1", "data").ok());
  // A killed process leaves the database and its log, so they are copied without closing.
  const fs::path copy = directory_ / "copy.db";
  fs::copy_file(path_, copy);
  fs::copy_file(path_ + "-wal", copy.string() + "-wal");
  const auto reopened = Store::Open(copy.string(), Mode::kOpenOrCreate);
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  EXPECT_EQ(*(*reopened)->Load("agent"), (Objects{{"ag1", "data"}}));
}

TEST_F(StoreTest, CreateOnlyRefusesAnExistingFile) {
  {
    auto created = Store::Open(path_, Mode::kCreateOnly);
    ASSERT_TRUE(created.ok()) << created.status();
    ASSERT_TRUE(Put(**created, "agent", "ag1", "data").ok());
  }
  const std::string before = Bytes();
  const auto again = Store::Open(path_, Mode::kCreateOnly);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(again.status().message(),
            "storage " + path_ + " already exists; remove it to start again");
  EXPECT_TRUE(Bytes() == before);
}

TEST_F(StoreTest, SecondOpenerIsRefusedUntilTheFirstCloses) {
  auto first = Open();
  ASSERT_NE(first, nullptr);
  const auto second = Store::Open(path_, Mode::kOpenOrCreate);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.status().message(), "storage " + path_ + " is in use by another vipu-server");
  EXPECT_TRUE(Put(*first, "agent", "ag1", "data").ok());  // and does no harm
  first.reset();
  EXPECT_NE(Open(), nullptr);
}

TEST_F(StoreTest, MissingDirectoryIsAnError) {
  const auto store = Store::Open((directory_ / "no/such.db").string(), Mode::kOpenOrCreate);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kUnavailable) << store.status();
}

TEST_F(StoreTest, OnlyFilesAreOpened) {
  const std::string pipe = (directory_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {directory_.string(), pipe, std::string("/dev/zero")}) {
    const auto store = Store::Open(path, Mode::kOpenOrCreate);
    EXPECT_EQ(store.status().message(),
              "storage " + path + " is " + (path == directory_ ? "a directory" : "not a file"));
  }
  // Beside it, too.
  fs::create_directories(path_ + "-wal");
  EXPECT_EQ(Store::Open(path_, Mode::kOpenOrCreate).status().message(),
            "storage " + path_ + "-wal is a directory");
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(StoreTest, EmptyFileIsTakenAsNew) {
  Write("");
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(Put(*store, "agent", "ag1", "data").ok());
}

TEST_F(StoreTest, FileThatIsNotADatabaseIsLeftAsItIs) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "{\"not\": \"a database\"}\n";
  Write(text);
  ExpectUntrusted("it is not an SQLite database");
}

// Committed changes may be in the log alone.
TEST_F(StoreTest, ADamagedLogIsRefusedAndLeftAsItIs) {
  const std::string log = path_ + "-wal", garbage(3000, '\x5a');
  Write("");
  std::ofstream(log, std::ios::binary) << garbage;
  ExpectUntrusted("the header of its -wal file is damaged");
  EXPECT_EQ(base::ReadFile(log), garbage);
}

TEST_F(StoreTest, DamagedPagesAreRefusedAndLeftAsTheyAre) {
  WriteManyObjects();
  DamageFrom(kPageBytes);
  ExpectUntrusted("it is damaged");
}

// Collects the log lines that are written while the object lives.
class Logged {
 public:
  Logged() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_st>(text_)));
    spdlog::set_pattern("%l %v");
  }
  ~Logged() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_;
};

// The user is told in our words, and the log has what SQLite found.
TEST_F(StoreTest, WhatSqliteFindsDamagedIsLogged) {
  WriteManyObjects();
  // The last page is one of objects; the tables can be read.
  DamageFrom(Bytes().size() - kPageBytes);
  const Logged logged;
  ExpectUntrusted("it is damaged");
  const std::string text = logged.text(), begin = "warning storage " + path_ + ": SQLite says: ";
  EXPECT_EQ(text.rfind(begin, 0), 0u) << text;
  EXPECT_GT(text.size(), begin.size() + 1) << text;
  EXPECT_LT(text.size(), begin.size() + 510) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST_F(StoreTest, DatabaseOfAnotherProgramIsLeftAsItIs) {
  Sql("CREATE TABLE profile (name TEXT); INSERT INTO profile VALUES ('mine');");
  ExpectUntrusted("it is a database of another program");
}

TEST_F(StoreTest, OtherFormatIsRefusedAndLeftAsItIs) {
  Open().reset();
  Sql("UPDATE meta SET value = '3' WHERE name = 'format';");
  EXPECT_EQ(RefusedUntouched(absl::StatusCode::kFailedPrecondition),
            "storage " + path_ +
                " has format '3'; this vipu-server reads formats 1 to 2. "
                "A newer vipu-server wrote it");
}

TEST_F(StoreTest, Format1IsBroughtToThePresentOne) {
  store::StoredCluster cluster;
  cluster.set_id("c1");
  for (const char* agent : {"ag0", "ag1"}) cluster.add_agent_ids(agent);
  store::StoredPartition partition;
  partition.mutable_requirements()->set_id("p1");
  partition.mutable_requirements()->set_cluster_id("c1");
  partition.mutable_requirements()->set_size(2);
  for (const uint32_t pcie_id : {1u, 0u}) {
    store::StoredIpu* ipu = partition.add_ipus_of_format_1();
    ipu->set_agent_id("ag1");
    ipu->set_pcie_id(pcie_id);
  }
  auto old = Open();
  ASSERT_TRUE(Put(*old, "cluster", "c1", cluster.SerializeAsString()).ok());
  ASSERT_TRUE(Put(*old, "partition", "p1", partition.SerializeAsString()).ok());
  old.reset();
  Sql("UPDATE meta SET value = '1' WHERE name = 'format'; DROP TABLE counters; DROP TABLE events;");
  for (int time = 0; time < 2; ++time) {  // the second opens what the first left
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    store::StoredPartition upgraded;
    ASSERT_TRUE(upgraded.ParseFromString(store->Load("partition")->at("p1")));
    EXPECT_EQ(upgraded.first_ipu(), 6u);  // IPU 1 is at position 2 of the second machine
    EXPECT_EQ(upgraded.ipus_of_format_1_size(), 0);
  }
}

TEST_F(StoreTest, DamagedObjectOfFormat1IsRefusedAndLeftAsItIs) {
  auto store = Open();
  ASSERT_TRUE(Put(*store, "partition", "p1", "\xff").ok());
  store.reset();
  Sql("UPDATE meta SET value = '1' WHERE name = 'format';");
  RefusedUntouched(absl::StatusCode::kDataLoss);
}

TEST_F(StoreTest, EventsAndCountersAreKept) {
  {
    const auto store = Open();
    EXPECT_EQ(*store->LastEvent(), 0u);
    EXPECT_EQ(*store->Counter("generation"), 0u);
    EXPECT_TRUE(store
                    ->Commit({}, {{{"generation", 7}},
                                  {{1, 100, "INFO", "agent ag0", "root", "created"},
                                   {2, 200, "ERROR", "partition p1", "", "gone wrong"}}})
                    .ok());
  }
  const auto store = Open();
  EXPECT_EQ(*store->Counter("generation"), 7u);
  EXPECT_EQ(*store->LastEvent(), 2u);
  EXPECT_EQ(store->Events(0, 10, "")->size(), 2u);
  EXPECT_EQ((*store->Events(0, 1, ""))[0].number, 2u);  // the newest
  EXPECT_EQ((*store->Events(0, 10, "agent ag0"))[0].user, "root");
  EXPECT_TRUE(store->Events(2, 10, "")->empty());
  EXPECT_TRUE(store->Commit({}, {{}, {{3, 300, "INFO", "x", "", "y"}}}).ok());
  EXPECT_EQ((*store->Events(1, 1, ""))[0].number, 2u);  // the next
}

// Events of a user with these numbers.
Ledger EventsOf(const std::string& user, uint64_t first, uint64_t count) {
  Ledger ledger;
  for (uint64_t number = first; number < first + count; ++number)
    ledger.events.push_back({number, 0, "INFO", "of " + user, user, absl::StrCat(number)});
  return ledger;
}

std::vector<uint64_t> Numbers(const absl::StatusOr<std::vector<StoredEvent>>& events) {
  std::vector<uint64_t> numbers;
  for (const StoredEvent& event : events.value()) numbers.push_back(event.number);
  return numbers;
}

TEST_F(StoreTest, ABusyUserPushesOutNoEventsOfOthers) {
  constexpr uint32_t kAll = 2 * Store::kEventsKept;
  auto store = Open();
  ASSERT_TRUE(store->Commit({}, EventsOf("quiet", 1, 2)).ok());
  ASSERT_TRUE(store->Commit({}, EventsOf("", 3, 1)).ok());
  ASSERT_TRUE(store->Commit({}, EventsOf("busy", 4, Store::kEventsKept)).ok());
  uint64_t last = Store::kEventsKept + 3;
  const auto expect_fair = [&](uint64_t oldest_of_busy) {
    EXPECT_EQ(Numbers(store->Events(0, 10, "of quiet")), (std::vector<uint64_t>{1, 2}));
    EXPECT_EQ(store->Events(0, kAll, "")->size(), Store::kEventsKept);
    EXPECT_EQ(*store->LastEvent(), last);
    // A page goes on behind the gap.
    EXPECT_EQ(Numbers(store->Events(2, 3, "")),
              (std::vector<uint64_t>{3, oldest_of_busy, oldest_of_busy + 1}));
    EXPECT_EQ(Numbers(store->Events(4, 1, "")), std::vector<uint64_t>{oldest_of_busy});
    EXPECT_EQ(Numbers(store->Events(0, 1, "")), std::vector<uint64_t>{last});
  };
  expect_fair(7);
  ASSERT_TRUE(store->Commit({}, EventsOf("busy", last + 1, 5)).ok());
  last += 5;
  expect_fair(12);
  store.reset();
  store = Open();
  expect_fair(12);
  ASSERT_TRUE(store->Commit({}, EventsOf("busy", last + 1, 1)).ok());
  ++last;
  expect_fair(13);
}

TEST_F(StoreTest, ACommitThatFailsDropsNoEvents) {
  auto store = Open();
  ASSERT_TRUE(store->Commit({}, EventsOf("busy", 1, Store::kEventsKept)).ok());
  store.reset();
  Sql("CREATE TRIGGER stays BEFORE DELETE ON events WHEN OLD.number = 3"
      " BEGIN SELECT RAISE(ABORT, 'refused'); END;");
  store = Open();
  for (int time = 0; time < 2; ++time) {
    EXPECT_FALSE(store->Commit({}, EventsOf("busy", Store::kEventsKept + 1, 4)).ok());
    EXPECT_EQ(*store->LastEvent(), Store::kEventsKept);
    EXPECT_EQ(Numbers(store->Events(0, Store::kEventsKept, "")).front(), 1u);
  }
  for (uint64_t more = 1; more <= 2; ++more) {
    EXPECT_TRUE(store->Commit({}, EventsOf("other", Store::kEventsKept + more, 1)).ok());
    EXPECT_EQ(Numbers(store->Events(0, Store::kEventsKept, "")).front(), more + 1);
  }
  store.reset();
  Sql("DROP TRIGGER stays;");
}

// On a file system of its own, where that is permitted.
class SmallDisk : public StoreTest {
 protected:
  void SetUp() override {
    mounted_ = mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=400k") == 0;
    if (!mounted_) GTEST_SKIP() << "mounting is not permitted here";
  }
  void TearDown() override {
    if (mounted_) umount2(directory_.c_str(), MNT_DETACH);
  }
  void Remount(unsigned long flags, const char* options) {
    ASSERT_EQ(mount("tmpfs", directory_.c_str(), "tmpfs", MS_REMOUNT | flags, options), 0);
  }

 private:
  bool mounted_ = false;
};

TEST_F(SmallDisk, FullDiskRefusesChangesAndKeepsWhatIsThere) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(Put(*store, "agent", "ag0", "first").ok());
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i)
    status = Put(*store, "agent", absl::StrCat("big", i), std::string(20000, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find(path_), std::string::npos) << status;
  EXPECT_NE(status.message().find("free some space"), std::string::npos) << status;
  EXPECT_EQ(store->Load("agent")->at("ag0"), "first");
  Remount(0, "size=8m");
  EXPECT_TRUE(Put(*store, "agent", "ag1", "second").ok());
  EXPECT_EQ(store->Load("agent")->at("ag1"), "second");
}

TEST_F(SmallDisk, ReadOnlyDiskIsNamed) {
  auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(Put(*store, "agent", "ag0", "first").ok());
  store.reset();
  Remount(MS_RDONLY, nullptr);
  const absl::Status status = Store::Open(path_, Mode::kOpenOrCreate).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find(path_), std::string::npos) << status;
  EXPECT_NE(status.message().find("must be writable"), std::string::npos) << status;
  Remount(0, nullptr);
  EXPECT_NE(Open(), nullptr);
}

// The log of events grows for a long time; what is kept of it in memory does not.
TEST_F(StoreTest, MemoryDoesNotGrowWithWhatIsWritten) {
  const auto store = Open();
  uint64_t number = 0;
  const auto write = [&](int partitions) {
    Ledger ledger;
    for (int i = 0; i < partitions; ++i) {
      const std::string object = absl::StrCat("partition p", ++number);
      for (const char* text : {"created with 4 IPUs", "PENDING -> ACTIVE", "removed"})
        ledger.events.push_back(
            {3 * number + ledger.events.size() % 3, 0, "INFO", object, "u", text});
      if (ledger.events.size() < 300 && i + 1 < partitions) continue;
      ASSERT_TRUE(store->Commit({}, ledger).ok());
      ledger.events.clear();
    }
  };
  write(3000);
  const sqlite3_int64 before = sqlite3_memory_used();
  write(6000);
  EXPECT_LT(sqlite3_memory_used() - before, 64 << 10);
}

}  // namespace
}  // namespace vpod::controller
