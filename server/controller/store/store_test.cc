#include "server/controller/store/store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;
using Mode = Store::OpenMode;
using Objects = std::map<std::string, std::string>;

class StoreTest : public testing::Test {
 protected:
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
  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
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
  // The file is refused with the code, and stays as it is.
  std::string RefusedUntouched(absl::StatusCode code) {
    const std::string before = Bytes();
    const auto store = Store::Open(path_, Mode::kOpenOrCreate);
    EXPECT_EQ(store.status().code(), code) << store.status();
    EXPECT_TRUE(Bytes() == before) << "the file was changed";
    return std::string(store.status().message());
  }

  fs::path directory_;
  std::string path_;
};

TEST_F(StoreTest, ObjectsAreThereAfterReopening) {
  {
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(store->Put("agent", "ag1", "first").ok());
    EXPECT_TRUE(store->Put("agent", "ag2", std::string("\0binary\xff", 8)).ok());
    EXPECT_TRUE(store->Put("cluster", "ag1", "other kind").ok());
    EXPECT_TRUE(store->Put("agent", "ag3", "").ok());
    EXPECT_TRUE(store->Put("agent", "ag1", "second").ok());
    EXPECT_TRUE(store->Remove("agent", "ag3").ok());
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
    EXPECT_TRUE(store->Put("agent", "ag1", "old").ok());
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
  EXPECT_TRUE(store->Put("agent", "ag4", "new").ok());
  EXPECT_EQ(*store->Load("agent"), (Objects{{"ag2", "new"}, {"ag4", "new"}}));
  EXPECT_EQ(*store->Load("cluster"), (Objects{{"c1", "new"}}));
}

TEST_F(StoreTest, OnlyTheOwnerReadsIt) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->Put("user", "alice", "hash").ok());
  for (const char* file : {"", "-wal"}) {
    EXPECT_EQ(fs::status(path_ + file).permissions(),
              fs::perms::owner_read | fs::perms::owner_write)
        << file;
  }
}

TEST_F(StoreTest, RemovingWhatIsNotThereIsNoError) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->Remove("agent", "nobody").ok());
}

TEST_F(StoreTest, CommittedObjectsSurviveAProcessThatNeverCloses) {
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->Put("agent", "ag1", "data").ok());
  // What a killed process leaves: the database and its log, copied without closing.
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
    ASSERT_TRUE((*created)->Put("agent", "ag1", "data").ok());
  }
  const std::string before = Bytes();
  const auto again = Store::Open(path_, Mode::kCreateOnly);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(again.status().message(),
            "storage " + path_ + " exists already; remove it to start anew");
  EXPECT_TRUE(Bytes() == before);
}

TEST_F(StoreTest, SecondOpenerIsRefusedUntilTheFirstCloses) {
  auto first = Open();
  ASSERT_NE(first, nullptr);
  const auto second = Store::Open(path_, Mode::kOpenOrCreate);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.status().message(), "storage " + path_ + " is in use by another vipu-server");
  EXPECT_TRUE(first->Put("agent", "ag1", "data").ok());  // and does no harm
  first.reset();
  EXPECT_NE(Open(), nullptr);
}

TEST_F(StoreTest, MissingDirectoryIsAnError) {
  const auto store = Store::Open((directory_ / "no/such.db").string(), Mode::kOpenOrCreate);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kUnavailable) << store.status();
}

TEST_F(StoreTest, EmptyFileIsTakenAsNew) {
  Write("");
  const auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->Put("agent", "ag1", "data").ok());
}

TEST_F(StoreTest, FileThatIsNoDatabaseIsLeftAsItIs) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "{\"not\": \"a database\"}\n";
  Write(text);
  EXPECT_EQ(RefusedUntouched(absl::StatusCode::kDataLoss),
            "storage " + path_ +
                " is no intact vipu-server database (file is not a database); it was left as it "
                "is");
}

TEST_F(StoreTest, DamagedPagesAreRefusedAndLeftAsTheyAre) {
  {
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    for (int i = 0; i < 200; ++i)
      ASSERT_TRUE(store->Put("agent", std::to_string(i), std::string(300, 'x')).ok());
  }
  std::string bytes = Bytes();
  ASSERT_GT(bytes.size(), 8192u);
  std::fill(bytes.begin() + 4096, bytes.end(), '\x7f');
  Write(bytes);
  RefusedUntouched(absl::StatusCode::kDataLoss);
}

TEST_F(StoreTest, DatabaseOfAnotherProgramIsLeftAsItIs) {
  Sql("CREATE TABLE profile (name TEXT); INSERT INTO profile VALUES ('mine');");
  EXPECT_EQ(RefusedUntouched(absl::StatusCode::kDataLoss),
            "storage " + path_ +
                " is no intact vipu-server database (no such table: meta); it was left as it is");
}

TEST_F(StoreTest, OtherFormatIsRefusedAndLeftAsItIs) {
  Open().reset();
  Sql("UPDATE meta SET value = '2' WHERE name = 'format';");
  EXPECT_EQ(RefusedUntouched(absl::StatusCode::kFailedPrecondition),
            "storage " + path_ + " has format '2', this vipu-server reads 1");
}

}  // namespace
}  // namespace vpod::controller
