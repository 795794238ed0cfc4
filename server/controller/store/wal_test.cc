// The logs here are SQLite's own, written as the store writes them: WAL mode, exclusive locking,
// full synchronisation, and checkpoints by the writer itself.
#include "server/controller/store/wal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>

#include "device/base/file.h"
#include "device/base/unique_fd.h"
#include "server/controller/store/power_cut.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;
using Model = std::map<std::string, int>;  // objects and the transaction that wrote them last
using Ends = std::map<WalEnd, int>;

constexpr size_t kPage = 4096, kFrameHeader = 24, kFrame = kPage + kFrameHeader, kHeader = 32;
constexpr int kCheckpointFrames = 40;

int Number(const char* environment, int otherwise) {
  const char* given = std::getenv(environment);
  return given == nullptr ? otherwise : std::atoi(given);
}

// A database with one writer, which knows what it has been told is committed.
class Writer {
 public:
  struct Commit {
    size_t operation = 0;  // of the disk when it was acknowledged
    WalPosition position;
    size_t synced =
        0;  // the commit whose position is sure to be known once this one was acknowledged
    Model model;
  };

  Writer(const std::string& path, const char* vfs, int checkpoint_frames = kCheckpointFrames)
      : path_(path), checkpoint_frames_(checkpoint_frames) {
    EXPECT_EQ(
        sqlite3_open_v2(path.c_str(), &database_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs),
        SQLITE_OK);
    Run("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;");
    Run("PRAGMA cache_size=8;");  // large transactions spill
    sqlite3_wal_hook(
        database_,
        [](void* self, sqlite3*, const char*, int frames) {
          static_cast<Writer*>(self)->frames_ = static_cast<uint32_t>(frames);
          return SQLITE_OK;
        },
        this);
  }
  ~Writer() {
    sqlite3_db_config(database_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    sqlite3_close(database_);
  }

  void CreateTables() {
    Run("CREATE TABLE objects (id TEXT PRIMARY KEY, version INTEGER, data BLOB) WITHOUT ROWID;"
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER)");
  }
  void Run(const std::string& sql) {
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK)
        << message << " in " << sql;
  }

  // Changes some objects. Returns what it has become.
  Commit Transaction(int number, Model model, std::mt19937_64& random, const RecordingDisk* disk) {
    if (random() % 8 == 0) RollBackSomething(random);
    Run("BEGIN; INSERT OR REPLACE INTO meta VALUES ('number', " + std::to_string(number) + ");");
    const uint64_t changes = random() % 16 == 0 ? 40 : 1 + random() % 4;
    for (uint64_t i = 0; i < changes; ++i) {
      const std::string id = "p" + std::to_string(random() % 60);
      if (random() % 3 == 0) {
        Run("DELETE FROM objects WHERE id = '" + id + "'");
        model.erase(id);
      } else {
        const uint64_t bytes = random() % 8 == 0 ? random() % 9000 : random() % 300;
        Run("INSERT OR REPLACE INTO objects VALUES ('" + id + "', " + std::to_string(number) +
            ", randomblob(" + std::to_string(bytes) + "))");
        model[id] = number;
      }
    }
    Run("COMMIT");
    Commit commit;
    commit.operation = disk == nullptr ? 0 : disk->operations();
    commit.position = Position();
    commit.model = std::move(model);
    return commit;
  }

  // As the store does after a commit; the `running` file has been synced.
  bool CheckpointIfDue() {
    if (frames_ < static_cast<uint32_t>(checkpoint_frames_)) return false;
    Checkpoint();
    return true;
  }
  void Checkpoint() {
    int frames = 0, done = 0;
    EXPECT_EQ(
        sqlite3_wal_checkpoint_v2(database_, nullptr, SQLITE_CHECKPOINT_PASSIVE, &frames, &done),
        SQLITE_OK);
    EXPECT_EQ(frames, done);
  }
  WalPosition Position() const {
    const base::UniqueFd log(open((path_ + "-wal").c_str(), O_RDONLY | O_CLOEXEC));
    const auto position = ReadWalPosition(log.get(), kPage, frames_);
    EXPECT_TRUE(position.ok()) << position.status();
    return position.value_or(WalPosition());
  }

 private:
  void RollBackSomething(std::mt19937_64& random) {
    Run("BEGIN");
    for (uint64_t i = 0; i < 30 + random() % 30; ++i)
      Run("INSERT OR REPLACE INTO objects VALUES ('x" + std::to_string(i) +
          "', 0, zeroblob(3000))");
    Run("ROLLBACK");
  }

  const std::string path_;
  const int checkpoint_frames_;
  sqlite3* database_ = nullptr;
  uint32_t frames_ = 0;
};

// The files as SQLite reads them; nothing if it finds them broken.
struct Found {
  int number = -1;
  Model model;
  bool operator==(const Found&) const = default;
};
std::optional<Found> Open(const std::string& path) {
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_exec(database, "PRAGMA locking_mode=EXCLUSIVE", nullptr, nullptr, nullptr);
  Found found;
  bool sound = false;
  const auto each = [&](const char* sql, const auto& row) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, nullptr) != SQLITE_OK) return;
    while (sqlite3_step(statement) == SQLITE_ROW) row(statement);
    sqlite3_finalize(statement);
  };
  each("PRAGMA integrity_check", [&](sqlite3_stmt* row) {
    sound = std::string(reinterpret_cast<const char*>(sqlite3_column_text(row, 0))) == "ok";
  });
  each("SELECT value FROM meta",
       [&](sqlite3_stmt* row) { found.number = sqlite3_column_int(row, 0); });
  each("SELECT id, version FROM objects", [&](sqlite3_stmt* row) {
    found.model[reinterpret_cast<const char*>(sqlite3_column_text(row, 0))] =
        sqlite3_column_int(row, 1);
  });
  sqlite3_close(database);
  if (!sound) return std::nullopt;
  return found;
}

class WalTest : public testing::Test {
 protected:
  WalTest()
      : directory_(
            fs::path(testing::TempDir()) /
            (std::string("wal_") + testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    path_ = (directory_ / "store.db").string();
    copy_ = (directory_ / "copy.db").string();
    seed_ = static_cast<uint64_t>(Number("VPOD_TEST_SEED", 20260));
    random_.seed(seed_);
  }
  ~WalTest() override { fs::remove_all(directory_); }

  static WalReport Judge(const DiskFiles& files,
                         const std::optional<WalPosition>& known = std::nullopt) {
    const auto log = files.find("-wal");
    return JudgeWal(files.at(""), log == files.end() ? "" : log->second, known);
  }
  // The same of files, which stay as they are.
  WalReport Inspect(const DiskFiles& files,
                    const std::optional<WalPosition>& known = std::nullopt) {
    WriteFiles(copy_, files);
    const auto report = InspectWal(copy_, known);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(ReadFiles(copy_) == files) << "the files were changed";
    return report.value_or(WalReport());
  }
  // A log of some transactions, the database being as it was before them.
  void Fill(int transactions, bool behind_a_checkpoint = false) {
    WriteFiles(path_, {});
    commits_.clear();
    Writer writer(path_, nullptr, 1 << 20);
    writer.CreateTables();
    Model model;
    int number = 0;
    if (behind_a_checkpoint) {
      for (; number < 60; ++number)
        model = writer.Transaction(number, model, random_, nullptr).model;
      writer.Checkpoint();
      older_log_ = ReadFiles(path_)["-wal"];
    }
    for (int i = 0; i < transactions; ++i) {
      commits_.push_back(writer.Transaction(number++, model, random_, nullptr));
      model = commits_.back().model;
    }
    files_ = ReadFiles(path_);
    last_number_ = number - 1;
  }
  // Frame of the commit of the transaction so many before the last one.
  uint32_t CommitFrame(int before_last) const {
    return commits_[commits_.size() - 1 - before_last].position.frame;
  }

  fs::path directory_;
  std::string path_, copy_;
  uint64_t seed_;
  std::mt19937_64 random_;
  std::string older_log_;  // as the checkpoint found it
  std::vector<Writer::Commit> commits_;
  DiskFiles files_;
  int last_number_ = 0;
};

TEST_F(WalTest, AnIntactLogIsReadAsSqliteDoes) {
  for (const bool behind_a_checkpoint : {false, true}) {
    Fill(20, behind_a_checkpoint);
    const WalReport report = Inspect(files_, commits_.back().position);
    EXPECT_NE(report.end, WalEnd::kDamaged) << report.why;
    EXPECT_EQ(report.last_commit, commits_.back().position);
    // The creation of the two tables is a transaction each, before the first.
    EXPECT_EQ(report.transactions, behind_a_checkpoint ? 20u : 22u);
    EXPECT_EQ(report.page_size, kPage);
    EXPECT_EQ(Open(copy_)->number, last_number_);
    // An older position is reached too, and a position of another log is not.
    EXPECT_EQ(Inspect(files_, commits_.front().position), report);
    WalPosition other = commits_[3].position;
    ++other.checksum1;
    EXPECT_EQ(Inspect(files_, other).end, WalEnd::kDamaged);
  }
}

TEST_F(WalTest, NoLogAndAnEmptyOneAreMissing) {
  Fill(3);
  DiskFiles files = files_;
  for (const bool empty : {false, true}) {
    files.erase("-wal");
    if (empty) files["-wal"] = "";
    EXPECT_EQ(Inspect(files).end, WalEnd::kMissing);
    const WalReport report = Inspect(files, commits_.back().position);
    EXPECT_EQ(report.end, WalEnd::kDamaged);
    EXPECT_EQ(report.why, "its -wal file is missing or empty");
  }
  files = files_;
  files[""] = "";
  EXPECT_EQ(Inspect(files).why, "it is empty, its -wal file has 5 changes");
}

// --- Power cuts ---

class PowerCutTest : public WalTest {
 protected:
  PowerCutTest() {
    {
      Writer writer(path_, nullptr);
      writer.CreateTables();
      writer.Transaction(0, {}, random_, nullptr);
    }
    found_ = *Open(path_);
  }

  // Starts on the files that the last power cut left, writes, and cuts the power. Acknowledged
  // changes must be there, and must not look damaged.
  void Live(int transactions) {
    RecordingDisk disk("power_cut", path_);
    disk.Start();
    std::vector<Writer::Commit> commits = {{.model = found_.model}};
    const int first = found_.number;
    {
      Writer writer(path_, "power_cut");
      size_t synced = 1;
      for (int i = 1; i <= transactions; ++i) {
        commits.push_back(writer.Transaction(first + i, commits.back().model, random_, &disk));
        commits.back().synced = synced;
        // A checkpoint begins with the sync of what is known.
        if (writer.CheckpointIfDue()) synced = commits.back().synced = commits.size() - 1;
      }
    }
    const size_t cut = random_() % (disk.operations() + 1);
    const DiskFiles left = disk.Cut(cut, random_);
    size_t acknowledged = 0;
    while (acknowledged + 1 < commits.size() && commits[acknowledged + 1].operation <= cut)
      ++acknowledged;
    // The `running` file knows the last commit, or one since the last checkpoint.
    std::optional<WalPosition> known;
    if (acknowledged > 0) {
      const size_t oldest = commits[acknowledged].synced;
      known = commits[oldest + random_() % (acknowledged - oldest + 1)].position;
    }
    const WalReport report = Judge(left, known);
    ASSERT_NE(report.end, WalEnd::kDamaged) << "seed " << seed_ << ": " << report.why;
    ASSERT_EQ(Judge(left).end, report.end) << "seed " << seed_;
    ++ends_[report.end];
    WriteFiles(path_, left);
    const auto found = Open(path_);
    ASSERT_TRUE(found.has_value()) << "seed " << seed_;
    const int took_effect = found->number - first;
    ASSERT_GE(took_effect, static_cast<int>(acknowledged)) << "acknowledged changes are gone";
    ASSERT_LE(took_effect, static_cast<int>(acknowledged) + 1);
    ASSERT_EQ(found->model, commits[took_effect].model);
    found_ = *found;
  }

  Found found_;
  std::map<WalEnd, int> ends_;
};

// Each power cut falls on what the last one left, so that remains of several lie in one log.
TEST_F(PowerCutTest, EveryOneOf200IsFollowedByAStart) {
  const int cuts = Number("VPOD_TEST_POWER_CUTS", 200);
  for (int i = 0; i < cuts && !HasFatalFailure(); ++i)
    Live(static_cast<int>(random_() % (random_() % 4 == 0 ? 60 : 6)));
  std::printf("%d power cuts: %d logs clean, %d with a torn transaction, %d with a torn header\n",
              cuts, ends_[WalEnd::kClean], ends_[WalEnd::kTornTransaction],
              ends_[WalEnd::kTornHeader]);
  EXPECT_GT(ends_[WalEnd::kTornTransaction], cuts / 8);
}

// Disks write a sector wholly or not at all, but nobody has promised it.
TEST_F(WalTest, AHeaderTornWhenTheLogIsBegunAgainIsHarmless) {
  DiskFiles before, after;
  {
    Writer writer(path_, nullptr, 1 << 20);
    writer.CreateTables();
    Model model;
    for (int i = 0; i < 30; ++i) model = writer.Transaction(i, model, random_, nullptr).model;
    const WalPosition acknowledged = writer.Position();
    writer.Checkpoint();
    before = ReadFiles(path_);
    commits_ = {{.position = acknowledged, .model = model}};
    writer.Transaction(30, model, random_, nullptr);
    after = ReadFiles(path_);
  }
  const std::string old_header = before["-wal"].substr(0, kHeader),
                    new_header = after["-wal"].substr(0, kHeader);
  ASSERT_NE(old_header, new_header);
  int torn = 0;
  for (size_t bytes = 0; bytes <= kHeader; ++bytes) {
    for (const bool front : {false, true}) {
      DiskFiles files = before;
      files["-wal"].replace(front ? 0 : bytes, front ? bytes : kHeader - bytes,
                            front ? new_header.substr(0, bytes) : new_header.substr(bytes));
      const WalReport report = Inspect(files, commits_[0].position);  // and SQLite after it
      EXPECT_NE(report.end, WalEnd::kDamaged) << bytes << ": " << report.why;
      EXPECT_NE(report.end, WalEnd::kTornTransaction) << bytes;
      torn += report.end == WalEnd::kTornHeader;
      EXPECT_EQ(Open(copy_)->model, commits_[0].model);
      // The same header over a database that has not got it all.
      if (report.end != WalEnd::kTornHeader) continue;
      files[""][kPage + 2000] ^= 1;
      EXPECT_EQ(Inspect(files).why, "the header of its -wal file is damaged");
    }
  }
  EXPECT_GT(torn, 20);
}

// --- Damage ---

class DamageTest : public WalTest {
 protected:
  static void Flip(DiskFiles& files, size_t bit) {
    files["-wal"][bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  // Flips every bit of the frames' headers, and 40 of each page; returns how it was judged.
  std::map<WalEnd, int> FlipInFrames(uint32_t from, uint32_t to,
                                     const std::optional<WalPosition>& known = std::nullopt) {
    std::map<WalEnd, int> ends;
    DiskFiles files = files_;
    for (uint32_t frame = from; frame <= to; ++frame) {
      for (size_t i = 0; i < kFrameHeader * 8 + 40; ++i) {
        const size_t inside = i < kFrameHeader * 8 ? i : kFrameHeader * 8 + random_() % (kPage * 8);
        const size_t bit = (kHeader + (frame - 1) * kFrame) * 8 + inside;
        Flip(files, bit);
        const WalReport report = Judge(files, known);
        ++ends[report.end];
        if (random_() % 100 == 0) LookWithSqlite(files);
        Flip(files, bit);
      }
    }
    return ends;
  }
  void LookWithSqlite(const DiskFiles& files) {
    WriteFiles(copy_, files);
    const auto found = Open(copy_);
    ++looked_;
    silent_ += found.has_value() && found->number < last_number_;
  }
  // So many transactions from the end.
  uint32_t FirstFrame(int from_end) const { return CommitFrame(from_end) + 1; }

  int looked_ = 0, silent_ = 0;
};

TEST_F(DamageTest, AFlippedBitInTheHeaderIsRefused) {
  for (const bool behind_a_checkpoint : {false, true}) {
    Fill(12, behind_a_checkpoint);
    for (size_t bit = 0; bit < kHeader * 8; ++bit) {
      DiskFiles files = files_;
      Flip(files, bit);
      const WalReport report = Judge(files);
      EXPECT_EQ(report.end, WalEnd::kDamaged) << "bit " << bit;
      EXPECT_EQ(report.why, "the header of its -wal file is damaged");
      LookWithSqlite(files);
    }
  }
  EXPECT_GT(silent_, looked_ * 9 / 10);  // it opens the database as it was long ago
}

TEST_F(DamageTest, AFlippedBitInAnEarlyFrameIsRefused) {
  for (const bool behind_a_checkpoint : {false, true}) {
    Fill(12, behind_a_checkpoint);
    const auto ends = FlipInFrames(1, CommitFrame(2));
    EXPECT_EQ(ends, (Ends{{WalEnd::kDamaged, static_cast<int>(CommitFrame(2)) * 232}}));
    DiskFiles files = files_;
    Flip(files, (kHeader + 2 * kFrame) * 8 + 1000);
    const WalReport report = Judge(files);
    EXPECT_EQ(report.intact, 2u);
    EXPECT_EQ(report.later_commit, CommitFrame(1));
    EXPECT_EQ(report.why, "frame 3 of its -wal file is damaged; changes up to frame " +
                              std::to_string(CommitFrame(1)) + " had been acknowledged");
  }
  std::printf("SQLite alone opened %d of %d with changes missing\n", silent_, looked_);
  EXPECT_GT(silent_, looked_ / 2);
}

// The position that was acknowledged shows what the file alone cannot.
TEST_F(DamageTest, DamageInTheLastTransactionsIsRefusedIfThePositionIsKnown) {
  int missed = 0, flips = 0;
  for (int i = 0; i < 10; ++i) {
    Fill(12);
    const WalPosition last = commits_.back().position;
    for (const int from_end : {1, 0}) {
      const uint32_t from = FirstFrame(from_end + 1), to = CommitFrame(from_end);
      const int all = static_cast<int>(to - from + 1) * 232;
      EXPECT_EQ(FlipInFrames(from, to, last), (Ends{{WalEnd::kDamaged, all}}));
      // Without it the last transaction looks torn, the last but one rarely.
      Ends ends = FlipInFrames(from, to);
      if (from_end == 0) {
        EXPECT_LT(ends[WalEnd::kDamaged], all * 2 / 5);
      } else {
        flips += all, missed += all - ends[WalEnd::kDamaged];
      }
    }
  }
  std::printf("last transaction but one: %d of %d flips not refused without the position\n", missed,
              flips);
  EXPECT_LT(missed, flips / 10);
}

TEST_F(DamageTest, ALogCutShortIsRefusedIfThePositionIsKnown) {
  for (const bool behind_a_checkpoint : {false, true}) {
    Fill(12, behind_a_checkpoint);
    const size_t end = kHeader + CommitFrame(0) * kFrame;
    for (size_t i = 0; i < 400; ++i) {
      DiskFiles files = files_;
      files["-wal"].resize(i < 200 ? i : random_() % end);
      EXPECT_EQ(Judge(files, commits_.back().position).end, WalEnd::kDamaged) << i;
    }
    DiskFiles files = files_;
    files["-wal"].resize(end);  // older frames only
    EXPECT_NE(Judge(files, commits_.back().position).end, WalEnd::kDamaged);
  }
}

// Blocks that are lost, overwritten or stale, as disks and file systems damage files.
TEST_F(DamageTest, DamagedBlocksAreRefused) {
  Fill(40, /*behind_a_checkpoint=*/true);
  const size_t end = kHeader + CommitFrame(0) * kFrame;
  int missed = 0, tried = 0;
  for (const size_t block : {512, 4096, 65536}) {
    for (size_t at = 0; at < end; at += block) {
      for (int what = 0; what < 3; ++what) {
        DiskFiles files = files_;
        for (size_t i = at; i < std::min(at + block, end); ++i) {
          files["-wal"][i] = what == 0   ? '\0'
                             : what == 1 ? static_cast<char>(random_())
                                         : older_log_[i];
        }
        if (files == files_) continue;
        ++tried;
        EXPECT_EQ(Judge(files, commits_.back().position).end, WalEnd::kDamaged)
            << block << " bytes at " << at << ", kind " << what;
        if (Judge(files).end == WalEnd::kDamaged) continue;
        ++missed;  // only where no two transactions are left behind the damage
        EXPECT_GT(at + block, kHeader + CommitFrame(2) * kFrame)
            << block << " bytes at " << at << ", kind " << what << " of " << end;
      }
    }
  }
  std::printf("%d damaged blocks: all refused with the position, %d not without\n", tried, missed);
}

// In a torn transaction, a frame's header across two sectors may be of two ages, and look like a
// commit that others follow.
TEST_F(DamageTest, AHeaderOfTwoAgesProvesNothing) {
  int judged = 0;
  {
    WriteFiles(path_, {});
    Writer writer(path_, nullptr, 1 << 20);
    writer.CreateTables();
    writer.Run("INSERT INTO meta VALUES ('number', 0)");
    writer.Run("BEGIN");
    for (int i = 0; i < 300; ++i)
      writer.Run("INSERT INTO objects VALUES ('p" + std::to_string(i) + "', 1, randomblob(3000))");
    writer.Run("COMMIT");
    commits_ = {{.position = writer.Position()}};
    files_ = ReadFiles(path_);
  }
  for (uint32_t frame = 20; frame < CommitFrame(0) - 1; ++frame) {
    const size_t at = kHeader + (frame - 1) * kFrame, in_sector = at % 512;
    if (in_sector <= 512 - kFrameHeader) continue;
    DiskFiles files = files_;
    for (size_t i = at - in_sector; i < at - in_sector + 512; ++i)
      files["-wal"][i] = static_cast<char>(i - at == 7 ? 9 : i - at < 7 ? 0 : random_());
    EXPECT_EQ(Judge(files).end, WalEnd::kTornTransaction) << frame;
    ++judged;
  }
  EXPECT_GT(judged, 4);
}

// The sector that has the header is older than the rest, though intact.
TEST_F(DamageTest, AHeaderOlderThanItsFramesIsRefused) {
  Fill(12, /*behind_a_checkpoint=*/true);
  for (const size_t bytes : {kHeader, size_t{512}, size_t{4096}}) {
    DiskFiles files = files_;
    files["-wal"].resize(kHeader + CommitFrame(0) * kFrame);  // as if the older log had been short
    files["-wal"].replace(0, bytes, older_log_.substr(0, bytes));
    EXPECT_EQ(Judge(files).why, "the header of its -wal file is older than what follows") << bytes;
    LookWithSqlite(files);
  }
  EXPECT_EQ(silent_, looked_);
}

TEST_F(DamageTest, AnotherLogIsRefused) {
  Fill(5);
  const DiskFiles first = files_;
  const WalPosition position = commits_.back().position;
  Fill(9);
  DiskFiles files = first;
  files["-wal"] = files_["-wal"];
  EXPECT_EQ(Judge(files, position).why, "its -wal file is of another time");
  files["-wal"] = std::string(3000, 'Z');
  EXPECT_EQ(Judge(files).why, "the header of its -wal file is damaged");
  files["-wal"] = std::string(20000, 'Z');
  EXPECT_EQ(Judge(files).why, "the header of its -wal file is damaged");
  files["-wal"] = std::string(20000, '\0');
  EXPECT_EQ(Judge(files).why, "the header of its -wal file is damaged");
}

// Any bytes have an answer, and nothing beyond them is read (address sanitizer).
TEST_F(DamageTest, AnyBytesAreJudged) {
  Fill(6);
  for (int i = 0; i < Number("VPOD_TEST_FUZZ", 2000); ++i) {
    DiskFiles files = files_;
    std::string& log = files[random_() % 8 == 0 ? "" : "-wal"];
    for (uint64_t edits = 1 + random_() % 6; edits > 0; --edits) {
      const size_t at = random_() % log.size(), bytes = random_() % (random_() % 2 ? 9 : 6000);
      switch (random_() % 3) {
        case 0:
          for (size_t b = at; b < std::min(log.size(), at + bytes); ++b)
            log[b] = static_cast<char>(random_());
          break;
        case 1:
          log.resize(1 + at);
          break;
        default:
          log.insert(at, log.substr(random_() % log.size(), bytes));
      }
    }
    Judge(files, random_() % 2 ? std::optional(commits_[2].position) : std::nullopt);
  }
}

}  // namespace
}  // namespace vpod::controller
