// The store after power cuts, and after kill -9 with a log that is damaged, cut short or deleted:
// what was acknowledged is there, or the start is refused and nothing is changed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "device/base/file.h"
#include "server/controller/store/power_cut.h"
#include "server/controller/store/store.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;
using Objects = std::map<std::string, std::string>;

int Number(const char* environment, int otherwise) {
  const char* given = std::getenv(environment);
  return given == nullptr ? otherwise : std::atoi(given);
}

// Objects that a controller knows to be committed, and the files on its disk then.
struct Commit {
  size_t operation = 0;
  Objects objects;
  uint64_t last_event = 0;
  std::string running;  // the file's bytes
  size_t synced = 0;    // the latest commit whose `running` was synced
};

class StoreLogTest : public testing::Test {
 protected:
  StoreLogTest()
      : directory_(
            fs::path(testing::TempDir()) /
            (std::string("log_") + testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    path_ = (directory_ / "store.db").string();
    seed_ = static_cast<uint64_t>(Number("VPOD_TEST_SEED", 20261));
    random_.seed(seed_);
  }
  ~StoreLogTest() override { fs::remove_all(directory_); }

  // A change, or now and then what happened by itself.
  Commit Change(Store& store, Commit before, uint64_t number) {
    std::vector<controller::Change> changes;
    const bool is_event_only = random_() % 4 == 0;
    for (uint64_t i = 0; !is_event_only && i < 1 + random_() % 3; ++i) {
      const std::string id = "p" + std::to_string(random_() % 30);
      if (random_() % 3 == 0) {
        changes.push_back({"partition", id, std::nullopt});
        before.objects.erase(id);
      } else {
        const std::string data(random_() % 10 == 0 ? random_() % 100000 : random_() % 200, 'x');
        changes.push_back({"partition", id, std::to_string(number) + data});
        before.objects[id] = std::to_string(number) + data;
      }
    }
    const absl::Status status = store.Commit(
        changes, {{{"generation", number}}, {{number, 0, "INFO", "partition p", "", "text"}}});
    EXPECT_TRUE(status.ok()) << status;
    before.last_event = number;
    before.running = base::ReadFile(RunningFile::PathOf(path_));
    return before;
  }
  void WriteRunning(const std::string& bytes) const {
    fs::remove(RunningFile::PathOf(path_));
    if (bytes.empty()) return;
    std::ofstream(RunningFile::PathOf(path_), std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path directory_;
  std::string path_;
  uint64_t seed_;
  std::mt19937_64 random_;
};

TEST_F(StoreLogTest, StartsAfter200PowerCuts) {
  ASSERT_TRUE(Store::Open(path_, Store::OpenMode::kOpenOrCreate).ok());
  Commit state;
  uint64_t number = 0;
  std::string running;  // as the last power cut left it
  std::map<WalEnd, int> found;
  uint64_t epoch = 1;
  const int cuts = Number("VPOD_TEST_POWER_CUTS", 200);
  for (int cut = 0; cut < cuts; ++cut) {
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", cut " + std::to_string(cut));
    WriteRunning(running);
    RecordingDisk disk("power_cut_store", path_, /*by_default=*/true);
    disk.Start();
    std::vector<Commit> commits;
    size_t open_until = 0;
    {
      auto store = Store::Open(path_, Store::OpenMode::kOpenOrCreate);
      ASSERT_TRUE(store.ok()) << store.status();
      ++found[(*store)->log_found().end];
      EXPECT_GT((*store)->epoch(), epoch);
      epoch = (*store)->epoch();
      const Objects objects = *(*store)->Load("partition");
      const uint64_t event = *(*store)->LastEvent();
      // `state` is what was acknowledged, or the change after it.
      ASSERT_EQ(event, number);
      ASSERT_TRUE(objects == state.objects) << "what was acknowledged is gone";
      state.running = base::ReadFile(RunningFile::PathOf(path_));
      state.operation = disk.operations();
      state.synced = 0;
      commits.push_back(state);
      const uint64_t changes = random_() % (random_() % 5 == 0 ? 200 : 8);
      for (uint64_t i = 1; i <= changes; ++i) {
        commits.push_back(Change(**store, commits.back(), number + i));
        commits.back().operation = disk.operations();
        if (commits.back().objects != commits[i - 1].objects || disk.operations() == 0)
          commits.back().synced = i;
      }
      open_until = disk.operations();
    }  // closed in order, unless the power fails before
    size_t at = random_() % (disk.operations() + 1);
    at = std::max(at, commits.front().operation);
    const DiskFiles left = disk.Cut(at, random_);
    size_t acknowledged = 0;
    while (acknowledged + 1 < commits.size() && commits[acknowledged + 1].operation <= at)
      ++acknowledged;
    const size_t oldest = commits[acknowledged].synced;
    running = commits[oldest + random_() % (acknowledged - oldest + 1)].running;
    if (at > open_until) running.clear();  // removed before anything else
    WriteFiles(path_, left);
    // Whether the change after the last that was acknowledged is there as well, SQLite knows.
    state = commits[acknowledged];
    WriteRunning("");
    const DiskFiles now = ReadFiles(path_);
    const auto look = Store::Open(path_, Store::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(look.ok()) << look.status();
    const uint64_t event = *(*look)->LastEvent();
    const uint64_t base = commits.front().last_event == 0 ? number : commits.front().last_event;
    ASSERT_GE(event, acknowledged == 0 ? base : commits[acknowledged].last_event);
    ASSERT_LE(event, base + acknowledged + 1);
    state = commits[event - base];
    number = event;
    // As the cut left it, for the next round.
    const_cast<std::unique_ptr<Store>&>(*look).reset();
    WriteFiles(path_, now);
  }
  std::printf("%d power cuts: logs missing %d, clean %d, torn transaction %d, torn header %d\n",
              cuts, found[WalEnd::kMissing], found[WalEnd::kClean], found[WalEnd::kTornTransaction],
              found[WalEnd::kTornHeader]);
}

// kill -9 leaves everything that was written, also to `running`.
TEST_F(StoreLogTest, DamagedLogsLoseNothingOrAreRefused) {
  const int rounds = Number("VPOD_TEST_DAMAGES", 500);
  int refused = 0, started = 0;
  std::vector<Commit> commits(1);
  std::vector<DiskFiles> files;
  {
    auto store = Store::Open(path_, Store::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(store.ok()) << store.status();
    for (uint64_t i = 1; i <= 300; ++i) {
      commits.push_back(Change(**store, commits.back(), i));
      if (i % 10 == 0) files.push_back(ReadFiles(path_));
    }
  }
  for (int round = 0; round < rounds; ++round) {
    const size_t which = random_() % files.size();
    const Commit& commit = commits[(which + 1) * 10];
    DiskFiles damaged = files[which];
    std::string& log = damaged["-wal"];
    const size_t at = random_() % log.size();
    const uint64_t kind = round % 5;
    if (kind == 0) log.resize(at);
    if (kind == 1) log[at] ^= static_cast<char>(1 << random_() % 8);
    if (kind == 2) damaged.erase("-wal");
    if (kind == 3) log.replace(at, 512, std::string(std::min<size_t>(512, log.size() - at), '\0'));
    if (kind == 4) log[random_() % 32] ^= static_cast<char>(1 << random_() % 8);
    WriteFiles(path_, damaged);
    WriteRunning(commit.running);
    auto store = Store::Open(path_, Store::OpenMode::kOpenOrCreate);
    if (store.ok()) {
      ++started;
      EXPECT_EQ(*(*store)->LastEvent(), commit.last_event) << "kind " << kind << " at " << at;
      EXPECT_TRUE(*(*store)->Load("partition") == commit.objects) << "kind " << kind;
      continue;
    }
    ++refused;
    EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
    EXPECT_TRUE(ReadFiles(path_) == damaged) << "the files were changed";
    EXPECT_EQ(base::ReadFile(RunningFile::PathOf(path_)), commit.running);
  }
  std::printf("%d damaged logs: %d refused, %d started with everything\n", rounds, refused,
              started);
}

TEST_F(StoreLogTest, AnInterruptedRestoreIsNamed) {
  ASSERT_TRUE(Store::Open(path_, Store::OpenMode::kOpenOrCreate).ok());
  EXPECT_FALSE(fs::exists(RunningFile::PathOf(path_)));  // closed in order
  ASSERT_TRUE((*RunningFile::Open(path_))->Write({RunState::kRestoring, {}}, true).ok());
  const auto store = Store::Open(path_, Store::OpenMode::kOpenOrCreate);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.status().message(), "storage " + path_ +
                                          ": a restore was interrupted; run 'vipu-server "
                                          "--restore' again");
}

}  // namespace
}  // namespace vpod::controller
