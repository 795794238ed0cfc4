// A POD of `vpod up` that is backed up, ended and restored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "device/base/file.h"
#include "device/base/unique_fd.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

void ExpectRefused(const Outcome& outcome, const std::string& text) {
  EXPECT_NE(outcome.code, 0);
  EXPECT_EQ(outcome.err.rfind("vpod: error: ", 0), 0u) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(text));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

std::string Backup(TestPod& pod) {
  std::string file = pod.directory() + "/monday.backup";
  const Outcome made = pod.Run({"vpod", "backup", file});
  EXPECT_EQ(made.code, 0) << made.err;
  return file;
}

// Names of all files below a directory but logs.
std::string Listing(TestPod& pod, const std::string& directory) {
  return pod.Shell("cd " + directory + " && find . -type f ! -name '*.log' -printf '%P\\n' | sort")
      .out;
}

TEST(VpodBackupTest, APodThatWasBroughtDownComesBack) {
  for (const char* secure : {"", "--secure"}) {
    SCOPED_TRACE(secure);
    TestPod pod(4, *secure == '\0' ? std::vector<std::string>() : std::vector<std::string>{secure});
    pod.CreatePartition("p4", 4);
    const std::string file = Backup(pod);
    EXPECT_EQ(pod.Run({"stat", "-c", "%a", file}).out, "600\n");
    ExpectRefused(pod.Run({"vpod", "backup", file}), file + " is there already");
    ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
    ExpectRefused(pod.Run({"vpod", "backup", file + "2"}), "no POD in " + pod.home());
    const Outcome restored = pod.Run({"vpod", "restore", file});
    ASSERT_EQ(restored.code, 0) << restored.err;
    EXPECT_THAT(restored.out, HasSubstr("(1 agent, 1 cluster, 1 partition"));
    EXPECT_THAT(restored.out, HasSubstr("POD4 is up: 1 machine (m2000)"));
    const Outcome used = pod.Shell(
        "vipu wait partition p4 --for active && gc-info --ipu-count && "
        "poprun --num-replicas 4 replica_job --runs 1 >&2");
    EXPECT_EQ(used.code, 0) << used.err;
    EXPECT_EQ(used.out, "wait partition (p4): success.\n4\n");
  }
}

// Also below another name, as on another machine.
TEST(VpodBackupTest, ItMayMoveToAnotherDirectory) {
  TestPod pod(4, {"--secure"});
  pod.CreatePartition("p4", 4);
  const std::string file = Backup(pod), moved = pod.directory() + "/moved";
  ASSERT_EQ(pod.Run({"vpod", "delete"}).code, 0);
  pod.environment()["VPOD_HOME"] = moved;
  pod.environment()["IPUOF_CONFIG_DIR"] = moved + "/ipuof.conf.d";
  const Outcome restored = pod.Run({"vpod", "restore", file});
  ASSERT_EQ(restored.code, 0) << restored.err;
  const Outcome used = pod.Shell("vipu wait partition p4 --for active && gc-info --ipu-count");
  EXPECT_EQ(used.code, 0) << used.err;
  EXPECT_EQ(pod.Run({"vpod", "delete"}).code, 0);
  EXPECT_FALSE(fs::exists(moved));
}

// Its agents go on with their jobs.
TEST(VpodBackupTest, APodThatRunsGetsItsStateOfThen) {
  TestPod pod(8);
  pod.CreatePartition("before", 4);
  const std::string file = Backup(pod);
  ASSERT_EQ(pod.Shell("vipu create partition after --size 4").code, 0);
  pod.environment()["IPUOF_VIPU_API_PARTITION_ID"] = "before";
  const auto job = pod.Start({"replica_job", "--runs", "1000000", "--pause-ms", "10"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  const int agent = pod.AgentPid();
  const Outcome restored = pod.Run({"vpod", "restore", file});
  EXPECT_EQ(restored.code, 0) << restored.err;
  EXPECT_THAT(restored.out, HasSubstr("Not in the backup: partition after\n"));
  EXPECT_EQ(pod.AgentPid(), agent);
  EXPECT_EQ(pod.Shell("vipu list partitions -o name").out, "before\n");
  EXPECT_EQ(job->Err(), "");
  job->Signal(SIGTERM);
  job->Wait();
  // What a restore has put aside goes with the POD.
  EXPECT_EQ(pod.Shell("vpod down && ls $VPOD_HOME | grep -c before-restore").out,
            "POD in " + pod.home() + " is down.\n0\n");
}

// They would be keys below /tmp: of a command that a signal ends while it reads the archive, and of
// an earlier one that was killed.
TEST(VpodBackupTest, NoFilesAreLeftBehind) {
  TestPod pod(4);
  const Outcome left =
      pod.Shell("cd " + pod.directory() +
                " && mkdir -p tmp/vpod-backup-killed/files && touch tmp/vpod-backup-killed/lock && "
                "mkfifo pipe"
                " && TMPDIR=$PWD/tmp timeout -s TERM 3 vpod restore pipe; ls -A tmp");
  EXPECT_EQ(left.out, "") << left.err;
}

// A new POD in its place would look like the one that was to come back.
TEST(VpodBackupTest, UpRefusesToMakeAPodWhereARestoreWasKilled) {
  TestPod pod(4);
  pod.CreatePartition("p4", 4);
  const std::string file = Backup(pod), pipe = pod.directory() + "/pipe";
  ASSERT_EQ(pod.Shell("vpod down && mkfifo " + pipe).code, 0);
  const std::string text = pod.home() + " holds an unfinished restore of " + pipe +
                           "; repeat 'vpod restore', or give it up with 'vpod down'";
  const auto kill_restore = [&] {
    const auto restore = pod.Start({"vpod", "restore", pipe});
    ASSERT_TRUE(Within(kSoon, [&] { return fs::exists(pod.home() + "/unfinished-restore"); }))
        << restore->Err();
    restore->Signal(SIGKILL);
    restore->Wait();
    for (const char* command : {"up", "status", "env"}) {
      const Outcome refused = pod.Run({"vpod", command});
      ExpectRefused(refused, text);
      EXPECT_EQ(refused.code, 1);
    }
  };
  kill_restore();
  ASSERT_EQ(pod.Run({"vpod", "restore", file}).code, 0);
  EXPECT_EQ(pod.Shell("vipu list partitions -o name").out, "p4\n");
  ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
  kill_restore();
  EXPECT_EQ(pod.Run({"vpod", "down"}).out, "POD in " + pod.home() + " is down.\n");
  ASSERT_EQ(pod.Run({"vpod", "up", "--pod", "4", "--memory-limit", "1024"}).code, 0);
  EXPECT_EQ(pod.Shell("vipu list partitions -o name").out, "");
}

// Puts a script in the place of vipu-server, which does something if its words match a pattern, and
// is the controller else. Returns what puts the controller back.
std::function<void()> ReplaceServer(TestPod& pod, const std::string& pattern,
                                    const std::string& instead) {
  const std::string server = pod.directory() + "/bin/vipu-server", real = server + ".real";
  // vpod knows its daemons by the name of the file that they run, which is the shell's here.
  const std::string shell = pod.directory() + "/shell/vipu-server";
  fs::create_directories(pod.directory() + "/shell");
  fs::copy_file(fs::canonical("/bin/sh"), shell, fs::copy_options::overwrite_existing);
  fs::rename(server, real);
  std::ofstream(server) << "#!" << shell << "\ncase \"$*\" in " << pattern << ") " << instead
                        << ";; esac\nexec " << real << " \"$@\"\n";
  fs::permissions(server, fs::perms::owner_all);
  return [=] { fs::rename(real, server); };
}

// The controller ends vpod when it is about to replace the storage.
TEST(VpodBackupTest, ARestoreThatWasKilledInTheMidstIsRepeated) {
  for (const bool runs : {true, false}) {
    SCOPED_TRACE(runs ? "over the POD" : "where none is");
    TestPod pod(4, {"--secure"});
    pod.CreatePartition("p4", 4);
    const std::string file = Backup(pod);
    if (!runs) {
      ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
    }
    const auto put_back =
        ReplaceServer(pod, "*" + pod.home() + "*--restore*", "kill -9 $PPID; exit");
    EXPECT_EQ(pod.Run({"vpod", "restore", file}).code, 128 + SIGKILL);
    ExpectRefused(pod.Run({"vpod", "up"}), "holds an unfinished restore of " + file);
    put_back();
    const Outcome again = pod.Run({"vpod", "restore", file});
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(pod.Shell("vipu list partitions -o name").out, "p4\n");
    EXPECT_EQ(pod.Run({"vpod", "status"}).code, 0);
  }
}

void ExpectInterrupted(const Outcome& outcome, const std::string& command,
                       const std::string& remains) {
  EXPECT_EQ(outcome.code, 128 + SIGINT);
  EXPECT_EQ(outcome.err, "vpod: error: '" + command + "' was interrupted; " + remains + "\n");
}

// Interrupts vpod, which has started the script, and waits for its end.
constexpr char kInterrupt[] = "kill -INT $PPID; while kill -0 $PPID; do sleep 0.1; done; exit";

TEST(VpodBackupTest, AnInterruptedRestoreSaysWhatRemains) {
  TestPod pod(4);
  const std::string file = Backup(pod), pipe = pod.directory() + "/pipe";
  ASSERT_EQ(pod.Shell("vpod delete && mkfifo " + pipe).code, 0);
  const auto restore = pod.Start({"vpod", "restore", pipe});
  ASSERT_TRUE(Within(kSoon, [&] { return fs::exists(pod.home() + "/unfinished-restore"); }))
      << restore->Err();
  restore->Signal(SIGINT);
  ExpectInterrupted(restore->Wait(), "vpod restore", "nothing has changed in " + pod.home());
  EXPECT_FALSE(fs::exists(pod.home()));
  const auto put_back = ReplaceServer(pod, "*" + pod.home() + "*--restore*", kInterrupt);
  ExpectInterrupted(pod.Run({"vpod", "restore", file}), "vpod restore",
                    "the POD in " + pod.home() +
                        " is restored in part; repeat it, or give it up with 'vpod down'");
  put_back();
  const auto put_back_too = ReplaceServer(pod, "*--user-api-listen*", kInterrupt);
  ExpectInterrupted(pod.Run({"vpod", "restore", file}), "vpod restore",
                    "the POD in " + pod.home() + " is restored; 'vpod up' starts it");
  put_back_too();
  const Outcome up = pod.Run({"vpod", "up"});
  EXPECT_EQ(up.code, 0) << up.err;
}

TEST(VpodBackupTest, AnInterruptedBackupSaysThatNothingIsWritten) {
  TestPod pod(4);
  const std::string file = pod.directory() + "/monday.backup", staging = pod.directory() + "/tmp";
  ASSERT_TRUE(fs::create_directory(staging));
  pod.environment()["TMPDIR"] = staging;
  kill(pod.ServerPid(), SIGSTOP);  // it does not answer
  const auto backup = pod.Start({"vpod", "backup", file});
  ASSERT_TRUE(Within(kSoon, [&] { return !fs::is_empty(staging); })) << backup->Err();
  backup->Signal(SIGINT);
  ExpectInterrupted(backup->Wait(), "vpod backup", file + " is not written");
  kill(pod.ServerPid(), SIGCONT);
  EXPECT_FALSE(fs::exists(file));
  EXPECT_TRUE(fs::is_empty(staging));
}

TEST(VpodBackupTest, AnInterruptedUpSaysWhatRemains) {
  TestPod pod(0);
  const std::vector<std::string> up = {
      "vpod",           "up",   "--pod",      "4",
      "--memory-limit", "1024", "--api-port", std::to_string(pod.port())};
  const auto put_back = ReplaceServer(pod, "*--user-api-listen*", kInterrupt);
  ExpectInterrupted(
      pod.Run(up), "vpod up",
      "the POD in " + pod.home() + " is not whole; 'vpod up' finishes it, 'vpod down' removes it");
  // Only the command that names the file makes the objects that the file describes.
  const std::string file = pod.directory() + "/pod.yaml";
  std::ofstream(file) << "machines: 1\nmemory_limit: 1024\napi_port: " << pod.port() << "\n";
  ExpectInterrupted(pod.Run({"vpod", "up", "-f", file}), "vpod up",
                    "the POD in " + pod.home() + " is not whole; 'vpod up -f " + file +
                        "' finishes it, 'vpod down' removes it");
  put_back();
  const Outcome next = pod.Run(up);
  EXPECT_EQ(next.code, 0) << next.err;
  for (const int daemon : {pod.ServerPid(), pod.AgentPid()})
    ASSERT_TRUE(EndProcess(daemon, SIGTERM)) << "the daemon does not take it";
  const auto put_back_too = ReplaceServer(pod, "*--user-api-listen*", kInterrupt);
  ExpectInterrupted(pod.Run(up), "vpod up",
                    "the POD in " + pod.home() + " runs in part; 'vpod up' starts the rest");
  put_back_too();
  EXPECT_EQ(pod.Run(up).code, 0);
}

TEST(VpodBackupTest, ARefusedRestoreChangesNothing) {
  TestPod pod(4);
  const std::string file = Backup(pod), bad = pod.directory() + "/bad";
  const std::string good = base::ReadFile(file);
  const std::string before = Listing(pod, pod.home());
  const int server = pod.ServerPid();
  std::ofstream(bad) << good.substr(0, good.size() / 2);
  ExpectRefused(pod.Run({"vpod", "restore", bad}), bad + " is not a file of 'vpod backup'");
  ExpectRefused(pod.Run({"vpod", "restore", "/etc/passwd"}), "it is not an intact archive");
  ExpectRefused(pod.Run({"vpod", "restore", "/nowhere"}), "cannot read /nowhere");
  ASSERT_EQ(pod.Run({"vipu-admin", "backup", pod.directory() + "/store"}).code, 0);
  ExpectRefused(pod.Run({"vpod", "restore", pod.directory() + "/store"}),
                "'vipu-server --restore' takes");
  // An archive with a damaged storage, and one whose files lead elsewhere.
  ASSERT_EQ(
      pod.Shell(
             "cd " + pod.directory() +
             " && mkdir a && tar -C a -xzf monday.backup && truncate -s 8192 a/store.backup && tar "
             "-C a -czf damaged . && ln -sf /etc/passwd a/pod.json && tar -C a -czf link .")
          .code,
      0);
  ExpectRefused(pod.Run({"vpod", "restore", pod.directory() + "/damaged"}), "");
  ExpectRefused(pod.Run({"vpod", "restore", pod.directory() + "/link"}),
                "it has more than files and directories");
  // Values that no POD has, before a directory is made for them.
  TestPod none(0);
  for (const auto& [key, value, what] : std::vector<std::array<std::string, 3>>{
           {"ipus", "5", "ipus 5: the size must be a power of two from 4 to 65536"},
           {"machine_type", "\"m3000\"", "unknown machine type 'm3000'; give m2000 or bow2000"},
           {"api_port", "70000", "api_port is 70000, must be a whole number from 1 to 65535"}}) {
    const Outcome made = pod.Shell("cd " + pod.directory() +
                                   " && rm -rf b && mkdir b && tar -C b -xzf monday.backup && sed "
                                   "-i 's/\"" +
                                   key + "\": [^,]*/\"" + key + "\": " + value +
                                   "/' b/pod.json && tar -C b -czf values .");
    ASSERT_EQ(made.code, 0) << made.err;
    ExpectRefused(none.Run({"vpod", "restore", pod.directory() + "/values"}),
                  "its pod.json is damaged: " + what);
    EXPECT_FALSE(fs::exists(none.home()));
  }
  // Another POD.
  TestPod other(8);
  ExpectRefused(other.Run({"vpod", "restore", file}),
                other.home() + " holds another POD (POD8, m2000, port");
  EXPECT_EQ(Listing(pod, pod.home()), before);
  EXPECT_EQ(pod.ServerPid(), server);
  EXPECT_EQ(pod.Run({"vpod", "status"}).code, 0);
  EXPECT_EQ(other.Run({"vpod", "status"}).code, 0);
  // Where there was nothing, nothing is left.
  ExpectRefused(none.Run({"vpod", "restore", bad}), "is not a file of 'vpod backup'");
  ExpectRefused(none.Run({"vpod", "restore", file}), "is in use, which is that of the POD");
  EXPECT_FALSE(fs::exists(none.home()));
}

// What it leaves would be keys.
TEST(VpodBackupTest, AnArchiveWithAClosedDirectoryLeavesNothingBehind) {
  TestPod none(0);
  const std::string staging = none.directory() + "/staging";
  ASSERT_TRUE(fs::create_directory(staging));
  ASSERT_EQ(none.Shell("cd " + none.directory() +
                       " && mkdir -p a/closed && echo key > a/server.key && tar -C a "
                       "--exclude=./closed -cf closed.tar . && tar -C a --mode=0 -rf closed.tar "
                       "./closed && gzip closed.tar")
                .code,
            0);
  none.environment()["TMPDIR"] = staging;
  std::vector<std::string> words = {"vpod", "restore", none.directory() + "/closed.tar.gz"};
  // To the superuser a directory is closed only without these capabilities.
  const std::vector<std::string> without = {"setpriv", "--bounding-set",
                                            "-dac_override,-dac_read_search"};
  if (geteuid() == 0) words.insert(words.begin(), without.begin(), without.end());
  ExpectRefused(none.Run(words), "it has a directory that cannot be read");
  EXPECT_TRUE(fs::is_empty(staging));
  EXPECT_FALSE(fs::exists(none.home()));
}

TEST(VpodBackupTest, DownKeepsWhatItIsAskedToKeep) {
  TestPod pod(4);
  pod.CreatePartition("p4", 4);
  const Outcome down = pod.Run({"vpod", "down", "--keep"});
  EXPECT_EQ(down.out,
            "POD in " + pod.home() + " is down. Its state is kept: 'vpod up' restores it.\n");
  EXPECT_EQ(pod.Run({"vpod", "status"}).code, 1);
  // As the guide to backups of a controller says it.
  ASSERT_EQ(pod.Run({"vpod", "up"}).code, 0);
  EXPECT_EQ(pod.Shell("vipu wait partition p4 --for active && gc-info --ipu-count").out,
            "wait partition (p4): success.\n4\n");
  ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
  ASSERT_EQ(pod.Run({"vpod", "up", "--pod", "4", "--memory-limit", "1024"}).code, 0);
  EXPECT_EQ(pod.Shell("vipu list partitions -o name").out, "");
}

TEST(VpodBackupTest, AShellFindsTheNextPodOfItsDirectory) {
  TestPod pod(4);
  const std::string up = "vpod up --pod 4 --memory-limit 1024", env = "eval \"$(vpod env)\"; ";
  const Outcome same = pod.Shell(env + "vpod down && " + up + " && vipu-admin list agents -o name");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.err, "");
  EXPECT_THAT(same.out, HasSubstr("API 127.0.0.1:" + std::to_string(pod.port())));
  EXPECT_THAT(same.out, HasSubstr("\nag0\n"));
  // Somebody else has taken the port.
  ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
  const base::UniqueFd listener = ListenOn(pod.port());
  pod.environment()["VPOD_ENV_HOME"] = pod.home();
  const Outcome other = pod.Shell(up);
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("vpod: this shell's variables name port " +
                                   std::to_string(pod.port()) + ", but the POD's is "));
}

}  // namespace
}  // namespace vpod::testing
