// Fault table: the controller's store is full, cannot be written, is damaged, or is somebody
// else's.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "device/base/file.h"
#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;

void Overwrite(const std::string& path, size_t offset, const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file << bytes;
  ASSERT_TRUE(file.good());
}

class FaultStoreTest : public FaultTable {
 protected:
  FaultStoreTest() : server_(&pod_, "vipu-server"), store_(pod_.home() + "/vipu-server.db") {}

  // Another vipu-server on a store, at another port.
  Outcome Serve(const std::string& store) {
    // What SQLite says is in the log, which is stderr here.
    return pod_.Run({"vipu-server", "--config", "/dev/null", "--log-level", "error", "--storage",
                     store, "--user-api-listen", "127.0.0.1:" + std::to_string(FreePort())},
                    std::chrono::seconds(30));
  }

  // Ends the controller, damages its store, and expects that the next one refuses it and leaves
  // every byte as it was. Then brings back the store as it was before.
  void ExpectRefusedAndUntouched(const std::function<void()>& damage,
                                 const std::vector<std::string>& texts) {
    server_.End(SIGTERM);
    const std::string sound = base::ReadFile(store_);
    ASSERT_GT(sound.size(), 4096u);
    damage();
    const std::string damaged = base::ReadFile(store_);
    ASSERT_NE(damaged, sound);
    const Outcome refused = Serve(store_);
    ExpectOneLine(refused, {"vipu-server: error: "});
    for (const std::string& text : texts)
      EXPECT_NE(refused.err.find(text), std::string::npos) << refused.err;
    EXPECT_TRUE(base::ReadFile(store_) == damaged) << "the damaged store was changed";
    std::ofstream(store_, std::ios::binary | std::ios::trunc) << sound;
    server_.Start();
  }

  Outcome Create(const std::string& id) {
    return pod_.Run({"vipu-admin", "create", "partition", id, "--size", "1", "--reconfigurable"});
  }
  // The controller cannot write: changes are refused, and reading goes on.
  void ExpectNoChange(const std::string& reason) {
    ExpectOneLine(Create("p1"), {"create partition (p1): failed", reason});
    const Outcome removed = pod_.Run({"vipu-admin", "remove", "partition", "mine"});
    ExpectOneLine(removed, {"remove partition (mine): failed", reason});
    ExpectAllActive();
    ExpectOtherGoesOn();
  }
  // It can write again.
  void ExpectChanges() {
    const Outcome created = Create("p1");
    EXPECT_EQ(created.code, 0) << created.err;
    acknowledged_["p1"] = 1;
    server_.End(SIGKILL);
    server_.Start();
    ExpectAllActive();
  }

  Daemon server_;
  const std::string store_;
};

TEST_F(FaultStoreTest, ASecondControllerOnTheStoreIsRefused) {
  ExpectOneLine(Serve(store_), {"vipu-server: error: ", store_, "in use by another vipu-server"});
  ExpectAllActive();
  ExpectChanges();
}

TEST_F(FaultStoreTest, AFileThatIsNotAStoreIsLeftAsItIs) {
  ExpectRefusedAndUntouched([&] { Overwrite(store_, 0, "This was a letter to my mother. "); },
                            {store_, "Nothing was changed"});
}

TEST_F(FaultStoreTest, DamagedPagesAreRefused) {
  ExpectRefusedAndUntouched([&] { Overwrite(store_, 100, std::string(3000, '\xa5')); },
                            {store_, "Nothing was changed"});
}

TEST_F(FaultStoreTest, ATruncatedStoreIsRefused) {
  ExpectRefusedAndUntouched([&] { fs::resize_file(store_, 4096); }, {store_});
}

// Changes acknowledged after the damage are in the log only. A controller that passed over them
// would give these IPUs twice and end the job on them.
TEST_F(FaultStoreTest, ADamagedLogIsRefusedAndJobsGoOn) {
  const std::string log = store_ + "-wal";
  const size_t before = base::ReadFile(log).size();
  ASSERT_EQ(Create("late").code, 0);
  acknowledged_["late"] = 1;
  server_.End(SIGKILL);
  const std::string sound = base::ReadFile(log);
  ASSERT_GT(sound.size(), 2 * 4120u);
  std::string flipped = sound, salted = sound;
  flipped[32 + 24 + 2000] ^= 1;  // in the page of the first frame
  salted[32 + 8] ^= 1;           // in its salts
  const std::string cut = sound.substr(0, before);
  for (const auto& [damage, reason] : {std::pair(flipped, "frame 1 of its -wal file is damaged"),
                                       {salted, "frame 1 of its -wal file is damaged"},
                                       {cut, "had been acknowledged"},
                                       {std::string(), "its -wal file is missing or empty"}}) {
    if (damage.empty()) {
      fs::remove(log);
    } else {
      std::ofstream(log, std::ios::binary | std::ios::trunc) << damage;
    }
    const std::string store = base::ReadFile(store_);
    ExpectOneLine(Serve(store_), {"vipu-server: error: ", store_ + " cannot be trusted", reason});
    EXPECT_TRUE(base::ReadFile(store_) == store && base::ReadFile(log) == damage) << reason;
    ExpectOtherGoesOn();
  }
  std::ofstream(log, std::ios::binary | std::ios::trunc) << sound;
  server_.Start();
  ExpectAllActive();
  ExpectChanges();
}

TEST_F(FaultStoreTest, AStoreOfANewerFormatIsRefused) {
  ExpectRefusedAndUntouched(
      [&] {
        const Outcome newer =
            pod_.Run({"python3", "-c",
                      "import sqlite3, sys\n"
                      "with sqlite3.connect(sys.argv[1]) as db:\n"
                      "  db.execute(\"UPDATE meta SET value = '99' WHERE name = 'format'\")\n"
                      "db.close()",
                      store_});
        ASSERT_EQ(newer.code, 0) << newer.err;
      },
      {store_, "has format '99'", "reads "});
}

TEST_F(FaultStoreTest, AMissingDirectoryIsNamed) {
  ExpectOneLine(Serve(pod_.directory() + "/nowhere/store.db"),
                {"vipu-server: error: ", pod_.directory() + "/nowhere/store.db"});
}

// The disk is full, as a limit of the file size has it: writes fail in the middle.
TEST_F(FaultStoreTest, WritesThatFailAreReportedAndUndone) {
  server_.End(SIGTERM);
  server_.Start();
  rlimit limit{1, RLIM_INFINITY};
  ASSERT_EQ(prlimit(server_.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  ExpectNoChange("cannot write");
  limit.rlim_cur = RLIM_INFINITY;
  ASSERT_EQ(prlimit(server_.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  ExpectChanges();
}

// A disk of its own for the store, in a mount namespace that only the controller is in.
class FaultDiskTest : public FaultStoreTest {
 protected:
  void SetUp() override {
    if (pod_.Run({"unshare", "-m", "mount", "-t", "tmpfs", "disk", "/mnt"}).code != 0)
      GTEST_SKIP() << "a file system cannot be mounted here (no rights)";
    FaultStoreTest::SetUp();
    server_.End(SIGTERM);
  }
  // Starts the controller on a disk of 256 KiB that holds a copy of the store, mounted with
  // `options`. Returns once it serves or has ended.
  std::unique_ptr<Command> StartOnDisk(const std::string& options) {
    const std::string disk = pod_.directory() + "/disk";
    fs::create_directories(disk);
    auto server =
        pod_.Start({"unshare", "-m", "bash", "-c",
                    "mount -t tmpfs -o size=256k disk " + disk + " && cp " + store_ + " " + disk +
                        "/store.db && mount -o remount," + options + " " + disk +
                        " && exec vipu-server --config /dev/null --storage " + disk +
                        "/store.db --user-api-listen 127.0.0.1:" + std::to_string(pod_.port())});
    server->WaitForOutput("serving users on");
    // As its own namespace sees it.
    disk_ = "/proc/" + std::to_string(server->pid()) + "/root" + disk;
    return server;
  }

  std::string disk_;
};

TEST_F(FaultDiskTest, AFullDiskRefusesChangesUntilThereIsRoom) {
  {
    const auto server = StartOnDisk("rw");
    std::ofstream(disk_ + "/filler") << std::string(1 << 20, 'x');
    ExpectNoChange("disk is full");
    fs::remove(disk_ + "/filler");
    const Outcome created = Create("p1");
    EXPECT_EQ(created.code, 0) << created.err;
    acknowledged_["p1"] = 1;
    ExpectAllActive();
    // As after a power cut: what was acknowledged lies on the disk.
    for (const char* name : {"", "-wal"}) {
      std::ofstream(store_ + name, std::ios::binary | std::ios::trunc)
          << base::ReadFile(disk_ + "/store.db" + name);
    }
  }
  server_.Start();
}

TEST_F(FaultDiskTest, AReadOnlyDiskIsNamed) {
  const auto server = StartOnDisk("ro");
  const Outcome refused = server->Wait(kSoon);
  ExpectOneLine(refused, {"vipu-server: error: storage"});
  server_.Start();
}

}  // namespace
}  // namespace vpod::testing
