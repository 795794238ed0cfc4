// Bringing PODs up and down, and what users are told about them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "device/base/file.h"
#include "device/base/unique_fd.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;

// A process that has ended but was not waited for yet has no program.
bool Lives(int pid) {
  std::error_code error;
  return pid > 0 && !fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).empty();
}

void KillHard(int pid) { ASSERT_TRUE(EndProcess(pid, SIGKILL)); }

std::string Up(const TestPod& pod, const std::string& more) {
  return "vpod up --memory-limit 2048 --api-port " + std::to_string(pod.port()) + " " + more;
}

// One clear line.
void ExpectRefused(const Outcome& outcome, int code, const std::string& text) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("vpod: error: ", 0), 0u) << outcome.err;
  EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

// Processes that were started with a POD's directory on their command line.
int DaemonsOf(TestPod& pod) {
  return std::stoi(pod.Shell("grep -lz '" + pod.home() +
                             "' /proc/[0-9]*/cmdline 2>/dev/null | xargs -r -n1 dirname | while "
                             "read p; do readlink $p/exe; done | grep -c 'vipu-server$'")
                       .out);
}

TEST(VpodTest, UpTellsWhatIsThereAndStatusRepeatsIt) {
  TestPod pod(0);
  const Outcome before = pod.Run({"vpod", "status"});
  EXPECT_EQ(before.code, 1);
  EXPECT_EQ(before.out, "no POD in " + pod.home() + "\n");
  const Outcome up = pod.Shell(Up(pod, "--pod 16"));
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_EQ(up.err, "");
  EXPECT_EQ(up.out, "POD16 is up: 4 machines (m2000) in cluster c16, API 127.0.0.1:" +
                        std::to_string(pod.port()) + ", memory limit 2048 MiB, state in " +
                        pod.home() + "\nTo use it in this shell: eval \"$(vpod env)\"\n");
  pod.CreatePartition("p4", 4);
  const Outcome status = pod.Run({"vpod", "status"});
  EXPECT_EQ(status.code, 0);
  for (const std::string& text :
       {std::string("| POD16"), std::string("| running"), "| " + pod.home(),
        "| 127.0.0.1:" + std::to_string(pod.port()), std::string("| 4 x m2000"),
        "| pid " + std::to_string(pod.ServerPid()), "| pid " + std::to_string(pod.AgentPid()),
        std::string("| p4 (ACTIVE)")}) {
    EXPECT_NE(status.out.find(text), std::string::npos) << text << "\n" << status.out;
  }
}

TEST(VpodTest, EnvSuitsAnotherShell) {
  TestPod pod;
  pod.CreatePartition("p4", 4);
  const Outcome outcome = pod.Shell(
      "unset VIPU_CLI_API_HOST VIPU_CLI_API_PORT IPUOF_CONFIG_DIR; eval \"$(vpod env)\"; "
      "vipu list partitions | grep -c ACTIVE; gc-info --ipu-count; echo $VPOD_HOME");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "1\n4\n" + pod.home() + "\n");
  ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
  ExpectRefused(pod.Run({"vpod", "env"}), 1, "no POD in " + pod.home());
}

TEST(VpodTest, EnvQuotesItsHome) {
  TestPod pod(4);
  const std::string home = pod.directory() + "/it's $(touch ran) `touch ran`";
  const Outcome outcome =
      pod.Shell("cd " + pod.directory() + " && export VPOD_HOME='" + pod.directory() +
                "/it'\\''s $(touch ran) `touch ran`' && mv " + pod.home() +
                " \"$VPOD_HOME\" && eval \"$(vpod env)\" && echo \"$VPOD_HOME\"; "
                "ls ran; vpod down");
  EXPECT_EQ(outcome.out, home + "\nPOD in " + home + " is down.\n") << outcome.err;
}

TEST(VpodTest, ToolsFollowVpodHome) {
  TestPod pod(4), other(0);
  pod.CreatePartition("p4", 4);
  const std::string bare = "unset VIPU_CLI_API_HOST VIPU_CLI_API_PORT IPUOF_CONFIG_DIR; ";
  const Outcome found =
      pod.Shell(bare + "vipu list partitions | grep -c ACTIVE; gc-info --ipu-count");
  EXPECT_EQ(found.out, "1\n4\n") << found.err;
  const Outcome no_pod = other.Shell(bare + "vipu list partitions; gc-info -l");
  EXPECT_NE((no_pod.out + no_pod.err).find("VPOD_HOME is " + other.home() + ", where no POD is"),
            std::string::npos)
      << no_pod.out << no_pod.err;
  for (const char* command : {"vipu list partitions", "gc-info -l", "gc-monitor", "replica_job"}) {
    const Outcome another =
        pod.Shell("eval \"$(vpod env)\"; VPOD_HOME=" + other.home() + " " + command);
    EXPECT_NE(another.code, 0) << command;
    EXPECT_NE((another.out + another.err)
                  .find("VPOD_HOME is " + other.home() +
                        ", but this shell's variables are those of the POD in " + pod.home()),
              std::string::npos)
        << command << "\n"
        << another.out << another.err;
  }
}

TEST(VpodTest, NothingIsWrittenWithoutAHome) {
  TestPod pod(0);
  ExpectRefused(pod.Shell("VPOD_HOME= " + Up(pod, "--pod 4")), 2, "VPOD_HOME is empty");
  ExpectRefused(pod.Shell("unset VPOD_HOME HOME; " + Up(pod, "--pod 4")), 2,
                "neither VPOD_HOME nor HOME is set");
  EXPECT_FALSE(fs::exists("/.vpod"));
}

TEST(VpodTest, LogsShowBothDaemonsOrOne) {
  TestPod pod;
  const Outcome both = pod.Run({"vpod", "logs"});
  EXPECT_EQ(both.code, 0);
  EXPECT_NE(both.out.find("server: "), std::string::npos);
  EXPECT_NE(both.out.find("agent: "), std::string::npos);
  EXPECT_NE(both.out.find("serving users on 127.0.0.1:" + std::to_string(pod.port())),
            std::string::npos);
  const Outcome agent = pod.Run({"vpod", "logs", "agent", "-n", "1"});
  EXPECT_EQ(std::count(agent.out.begin(), agent.out.end(), '\n'), 1) << agent.out;
  EXPECT_EQ(agent.out.rfind("agent: ", 0), 0u);
  EXPECT_EQ(pod.Run({"vpod", "logs", "server", "-n", "0"}).out, "");
  ExpectRefused(pod.Run({"vpod", "logs", "nobody"}), 2, "nobody");
  ExpectRefused(pod.Run({"vpod", "logs", "-n", "-1"}), 2, "-n");
}

TEST(VpodTest, DoctorFindsWhatIsWrong) {
  TestPod pod;
  const Outcome well = pod.Run({"vpod", "doctor"});
  EXPECT_EQ(well.code, 0) << well.out;
  EXPECT_EQ(well.out.find("FAIL"), std::string::npos) << well.out;
  EXPECT_NE(well.out.find("ok   4 of 4 machines are up"), std::string::npos) << well.out;
  KillHard(pod.AgentPid());
  const Outcome ill = pod.Run({"vpod", "doctor"});
  EXPECT_EQ(ill.code, 1);
  EXPECT_NE(ill.out.find("FAIL vipu-agent does not run - 'vpod up' restores the POD"),
            std::string::npos)
      << ill.out;
  EXPECT_NE(ill.out.find("ok   vipu-server runs as "), std::string::npos) << ill.out;
}

TEST(VpodTest, DoctorFindsAPodWithoutAgentsAndUpMakesThemAgain) {
  TestPod pod(4);
  ASSERT_EQ(pod.Shell("vipu-admin remove cluster c4 && vipu-admin remove agent ag0").code, 0);
  const Outcome doctor = pod.Run({"vpod", "doctor"});
  EXPECT_EQ(doctor.code, 1);
  EXPECT_NE(doctor.out.find("FAIL 0 of 0 machines are up - the controller has no agents"),
            std::string::npos)
      << doctor.out;
  const Outcome status = pod.Run({"vpod", "status"});
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.out.find("in part: the controller has no agents"), std::string::npos)
      << status.out;
  ASSERT_EQ(pod.Run({"vpod", "up"}).code, 0);
  EXPECT_EQ(pod.Run({"vpod", "doctor"}).code, 0);
  pod.CreatePartition("p4", 4);
}

TEST(VpodTest, DoctorTellsOfTheClustersAndPartitionsThatAreThere) {
  TestPod pod(8);
  const auto expect = [&](int code, const std::string& text) {
    const Outcome doctor = pod.Run({"vpod", "doctor"});
    EXPECT_EQ(doctor.code, code) << doctor.out;
    EXPECT_NE(doctor.out.find(text), std::string::npos) << doctor.out;
  };
  expect(0, "ok   cluster: c8\n");
  expect(0, "ok   0 partitions, none in ERROR\n");
  pod.CreatePartition("p4", 4);
  expect(0, "ok   1 partition, none in ERROR\n");
  // Such a partition stays ACTIVE, but loads no programs.
  const std::string parity = "partition p4: Agent ag0: IPU 0 needs a parity init: ";
  ASSERT_EQ(pod.Shell("vipu-admin inject agent ag0 --fault memory-parity --ipu 0").code, 0);
  EXPECT_TRUE(Within(kSoon, [&] {
    return pod.Run({"vpod", "doctor"}).out.find("FAIL " + parity) != std::string::npos;
  }));
  const std::string events = pod.Run({"vipu-admin", "list", "events"}).out;
  EXPECT_NE(events.find("injected MEMORY_PARITY on IPU 0 of partition p4"), std::string::npos)
      << events;
  ASSERT_EQ(pod.Shell("vipu-admin reset partition p4").code, 0);
  EXPECT_TRUE(Within(kSoon, [&] { return pod.Run({"vpod", "doctor"}).code == 0; }));
  ASSERT_EQ(pod.Shell("vipu-admin inject agent ag0 --fault ipu-error --ipu 0 --error "
                      "IPUSOFTERR && vipu-admin inject agent ag1 --fault ipu-error "
                      "--ipu 0 --error IPUSOFTERR && vipu wait partition p4 --for error")
                .code,
            0);
  expect(1, "FAIL 1 of 1 partition is in ERROR: p4 (");
  expect(1, "'vipu-admin get partition p4' gives the reason");
  ASSERT_EQ(pod.Shell("vipu-admin remove partition p4 && vipu-admin remove cluster c8").code, 0);
  expect(1, "FAIL there is no cluster - ");
  ASSERT_EQ(pod.Shell("for agent in ag0 ag1; do vipu-admin inject agent $agent --clear; done; "
                      "vipu-admin create cluster lab --agents ag0,ag1")
                .code,
            0);
  expect(0, "ok   cluster: lab\n");
}

TEST(VpodTest, DoctorTellsOfADamagedStore) {
  TestPod pod(4);
  ASSERT_EQ(pod.Run({"vpod", "down", "--keep"}).code, 0);
  const std::string storage = pod.home() + "/vipu-server.db";
  const Outcome well = pod.Run({"vpod", "doctor"});
  EXPECT_NE(well.out.find("ok   storage " + storage + " is intact\n"), std::string::npos)
      << well.out;
  {
    std::fstream file(storage, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(4096, 'x');
  }
  const Outcome ill = pod.Run({"vpod", "doctor"});
  EXPECT_EQ(ill.code, 1);
  EXPECT_NE(ill.out.find("FAIL storage " + storage + " cannot be trusted: "), std::string::npos)
      << ill.out;
  EXPECT_NE(ill.out.find(" - 'vpod restore' brings back a backup\n"), std::string::npos) << ill.out;
}

TEST(VpodTest, AStoppedAgentIsNamedWithWhatContinuesIt) {
  TestPod pod(4);
  const std::string text =
      "vipu-agent is stopped; 'kill -CONT " + std::to_string(pod.AgentPid()) + "' continues it";
  kill(pod.AgentPid(), SIGSTOP);
  const Outcome status = pod.Run({"vpod", "status"});
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.out.find("in part: " + text), std::string::npos) << status.out;
  const std::string doctor = pod.Run({"vpod", "doctor"}).out;
  EXPECT_NE(doctor.find("FAIL " + text + "\n"), std::string::npos) << doctor;
  const Outcome up = pod.Run({"vpod", "up"});
  EXPECT_EQ(up.code, 1);
  EXPECT_NE(up.err.find(text), std::string::npos) << up.err;
  kill(pod.AgentPid(), SIGCONT);
  EXPECT_EQ(pod.Run({"vpod", "up"}).code, 0);
}

TEST(VpodTest, DoctorFindsAHomeThatIsGone) {
  TestPod pod(4);
  fs::rename(pod.home(), pod.home() + ".moved");
  const Outcome doctor = pod.Run({"vpod", "doctor"});
  EXPECT_EQ(doctor.code, 1);
  EXPECT_NE(doctor.out.find("FAIL " + pod.home() + "/pod.json is gone while the POD runs"),
            std::string::npos)
      << doctor.out;
  fs::rename(pod.home() + ".moved", pod.home());
}

TEST(VpodTest, DoctorFindsAFullDisk) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting takes a superuser";
  TestPod pod(4);
  // A file system of its own, with no space left, over the POD's directory.
  const Outcome doctor =
      pod.Shell("unshare --mount sh -c 'cp -a " + pod.home() + " " + pod.directory() +
                "/copy && mount -t tmpfs -o size=256k none " + pod.home() + " && cp -a " +
                pod.directory() + "/copy/pod.json " + pod.home() + " && { cat /dev/zero >" +
                pod.home() + "/filler 2>/dev/null; vpod doctor; }'");
  EXPECT_EQ(doctor.code, 1) << doctor.err;
  EXPECT_NE(doctor.out.find("FAIL cannot write to " + pod.home() + ": No space left on device"),
            std::string::npos)
      << doctor.out;
}

TEST(VpodTest, UpOnARunningPodChangesNothing) {
  TestPod pod;
  pod.CreatePartition("p16", 16);
  const int server = pod.ServerPid(), agent = pod.AgentPid();
  for (const char* same : {"", " --pod 16", " --machine-type m2000 --agents one"}) {
    const Outcome again = pod.Shell(std::string("vpod up") + same);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(again.out, "POD16 is already up in " + pod.home() + " (API 127.0.0.1:" +
                             std::to_string(pod.port()) + "); nothing changed.\n");
  }
  for (const char* other : {"--pod 64", "--machine-type bow2000", "--agents processes",
                            "--memory-limit 1024", "--api-port 1"}) {
    ExpectRefused(pod.Shell(std::string("vpod up ") + other), 1,
                  pod.home() + " holds the state of a POD16 (m2000, port " +
                      std::to_string(pod.port()) +
                      ", memory limit 4096 MiB); 'vpod up' without options keeps it");
  }
  EXPECT_EQ(pod.ServerPid(), server);
  EXPECT_EQ(pod.AgentPid(), agent);
  EXPECT_TRUE(Lives(server) && Lives(agent));
  EXPECT_EQ(pod.Shell("vipu list partitions | grep -c ACTIVE").out, "1\n");
  EXPECT_EQ(pod.Shell("gc-info --tile-clock-speed").out, "1330MHz\n");
}

TEST(VpodTest, TwoPodsRunSideBySide) {
  TestPod one(16), two(4);
  one.CreatePartition("same", 16);
  two.CreatePartition("same", 4);
  EXPECT_EQ(one.Shell("gc-info --ipu-count").out, "16\n");
  EXPECT_EQ(two.Shell("gc-info --ipu-count").out, "4\n");
  const auto first = one.Start({"poprun", "--num-instances", "2", "--num-replicas", "16",
                                "replica_job", "--runs", "30", "--pause-ms", "10"});
  const Outcome second = two.Run(
      {"poprun", "--num-instances", "2", "--num-replicas", "4", "replica_job", "--runs", "30"});
  EXPECT_EQ(second.code, 0) << second.err;
  const Outcome list = two.Run({"vpod", "list"});
  EXPECT_NE(list.out.find(one.home() + "\n"), std::string::npos) << list.out;
  EXPECT_NE(list.out.find(two.home() + "\n"), std::string::npos) << list.out;
  EXPECT_NE(list.out.find("127.0.0.1:" + std::to_string(one.port()) + " "), std::string::npos);
  ASSERT_EQ(two.Run({"vpod", "down"}).code, 0);
  EXPECT_EQ(one.Run({"vpod", "list"}).out.find(two.home()), std::string::npos);
  const Outcome unharmed = first->Wait();
  EXPECT_EQ(unharmed.code, 0) << unharmed.err;
  EXPECT_TRUE(Lives(one.ServerPid()) && Lives(one.AgentPid()));
}

TEST(VpodTest, ListKnowsAPodWhoseProgramsWereRebuilt) {
  TestPod pod(0);
  const std::string server = pod.directory() + "/bin/vipu-server";
  const fs::path built = fs::canonical(server);
  fs::remove(server);
  fs::copy_file(built, server);
  const Outcome up = pod.Shell(Up(pod, "--pod 4"));
  ASSERT_EQ(up.code, 0) << up.err;
  fs::remove(server);
  const Outcome list = pod.Run({"vpod", "list"});
  EXPECT_NE(list.out.find(pod.home() + "\n"), std::string::npos) << list.out;
  std::ofstream(pod.home() + "/pod.json") << "{";
  const Outcome damaged = pod.Shell("vpod list | grep ' damaged .*" + pod.home() + "$'");
  EXPECT_EQ(damaged.code, 0) << damaged.out;
  fs::remove(pod.home() + "/pod.json");
  const Outcome gone = pod.Shell("vpod list | grep ' damaged .*" + pod.home() + "$'");
  EXPECT_EQ(gone.code, 0) << gone.out;
  ExpectRefused(pod.Run({"vpod", "status"}), 1, "pod.json is gone while the POD runs");
  ExpectRefused(pod.Run({"vpod", "up"}), 1, "pod.json is gone while the POD runs");
}

TEST(VpodTest, ListLeavesOutControllersOfOthers) {
  TestPod pod(4);
  const std::string own = pod.directory() + "/own";
  const Outcome list = pod.Shell("mkdir " + own + " && cp " + pod.home() + "/pod.json " + own +
                                 " && vipu-server --storage " + own +
                                 "/vipu-server.db --user-api-listen 127.0.0.1:0 2>" + own +
                                 "/log & pid=$!; until grep " + "-q 'serving users' " + own +
                                 "/log 2>/dev/null; do sleep 0.05; done; vpod list; kill $pid");
  EXPECT_NE(list.out.find(pod.home() + "\n"), std::string::npos) << list.out;
  EXPECT_EQ(list.out.find(own), std::string::npos) << list.out;
}

TEST(VpodTest, DaemonsAreFoundWithoutTheirPidFiles) {
  TestPod one(4), two(4);
  const int server = one.ServerPid(), agent = one.AgentPid();
  std::ofstream(one.home() + "/vipu-server.pid") << "";
  std::ofstream(one.home() + "/vipu-agent.pid") << two.AgentPid() << "\n";
  EXPECT_NE(one.Run({"vpod", "status"}).out.find("| running"), std::string::npos);
  EXPECT_EQ(one.Run({"vpod", "down"}).out, "POD in " + one.home() + " is down.\n");
  EXPECT_FALSE(Lives(server) || Lives(agent));
  EXPECT_TRUE(Lives(two.ServerPid()) && Lives(two.AgentPid()));
  const int orphan = two.ServerPid(), other_orphan = two.AgentPid();
  fs::remove_all(two.home());
  EXPECT_EQ(two.Run({"vpod", "down"}).out, "POD in " + two.home() + " is down.\n");
  EXPECT_FALSE(Lives(orphan) || Lives(other_orphan));
  EXPECT_EQ(two.Run({"vpod", "down"}).out, "no POD runs in " + two.home() + "\n");
}

TEST(VpodTest, APodThatRunsIsNotReplaced) {
  TestPod pod(4);
  KillHard(pod.AgentPid());
  const int server = pod.ServerPid();
  const std::string database = pod.home() + "/vipu-server.db";
  fs::rename(database, database + ".moved");
  ExpectRefused(pod.Run({"vpod", "up"}), 1, "is missing while the POD runs; 'vpod down' cleans up");
  EXPECT_TRUE(Lives(server));
  // A home that moved with its pid files is known.
  fs::rename(database + ".moved", database);
  fs::rename(pod.home(), pod.home() + ".moved");
  const Outcome down = pod.Shell("VPOD_HOME=" + pod.home() + ".moved vpod down");
  EXPECT_EQ(down.out, "POD in " + pod.home() + ".moved is down.\n") << down.err;
  EXPECT_FALSE(Lives(server));
}

TEST(VpodTest, RacksStayJoinedAsTheyWere) {
  TestPod pod(0);
  ExpectRefused(pod.Shell(Up(pod, "--pod 64 --cluster-topology looped")), 2,
                "--cluster-topology looped needs two racks or more, i.e. --pod 128 or larger");
  ASSERT_EQ(pod.Shell(Up(pod, "--pod 128 --cluster-topology switched")).code, 0);
  KillHard(pod.AgentPid());
  KillHard(pod.ServerPid());
  ExpectRefused(pod.Shell(Up(pod, "--pod 128 --cluster-topology looped")), 1,
                "holds the state of a POD128 (m2000, port " + std::to_string(pod.port()) +
                    ", racks switched,");
  const Outcome up = pod.Shell(Up(pod, "--pod 128"));
  EXPECT_EQ(up.code, 0) << up.err;
}

TEST(VpodTest, UpAndDownExcludeEachOther) {
  TestPod pod(4);
  const int server = pod.ServerPid();
  const base::UniqueFd lock(open((pod.home() + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  ExpectRefused(pod.Run({"vpod", "down"}), 1, "another vpod command works in " + pod.home());
  EXPECT_TRUE(Lives(server));
  ASSERT_EQ(flock(lock.get(), LOCK_UN), 0);
  EXPECT_EQ(pod.Run({"vpod", "down"}).code, 0);
}

// Its machines' addresses are in the store, and lower ones may have become free.
TEST(VpodTest, ARestartKeepsItsAddresses) {
  auto other = std::make_unique<TestPod>(4);
  TestPod pod(4);
  KillHard(pod.AgentPid());
  KillHard(pod.ServerPid());
  other.reset();
  const Outcome up = pod.Shell(Up(pod, "--pod 4"));
  EXPECT_EQ(up.code, 0) << up.err;
}

TEST(VpodTest, UpRestoresThePartitionsOfAKilledPod) {
  TestPod pod;
  pod.CreatePartition("p8", 8);
  ASSERT_EQ(pod.Shell("vipu create partition g4 --size 4 --num-gcds 2").code, 0);
  const std::string before = pod.Shell("vipu-admin list partitions").out;
  // Places and settings of everything, without the address of the agent's process.
  const std::string places =
      "for p in p8 g4; do vipu get partition $p; vipu get partition $p --ipuof-configs; done | "
      "grep -v endpoint";
  const std::string before_places = pod.Shell(places).out;
  KillHard(pod.AgentPid());
  KillHard(pod.ServerPid());
  const Outcome stopped = pod.Run({"vpod", "status"});
  EXPECT_EQ(stopped.code, 1);
  EXPECT_NE(stopped.out.find("| stopped"), std::string::npos) << stopped.out;

  ExpectRefused(pod.Shell(Up(pod, "--pod 64")), 1, "holds the state of a POD16");
  const Outcome up = pod.Run({"vpod", "up", "--pod", "16"});
  ASSERT_EQ(up.code, 0) << up.err;
  // The POD is up before its partitions are configured; who needs one waits for it.
  const Outcome job = pod.Run({"poprun", "--vipu-partition", "p8", "--vipu-partition-attempts",
                               "50", "--num-replicas", "8", "replica_job", "--runs", "2"});
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_EQ(pod.Shell("vipu-admin list partitions").out, before);
  EXPECT_EQ(pod.Shell(places).out, before_places);
}

TEST(VpodTest, UpRestoresAPodWhoseAgentWasKilled) {
  TestPod pod;
  pod.CreatePartition("p16", 16);
  KillHard(pod.AgentPid());
  const Outcome up = pod.Shell(Up(pod, "--pod 16"));
  ASSERT_EQ(up.code, 0) << up.err;
  const Outcome job = pod.Run({"poprun", "--vipu-partition", "p16", "--vipu-partition-attempts",
                               "50", "--num-replicas", "16", "replica_job", "--runs", "2"});
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_EQ(DaemonsOf(pod), 1);
}

// Stops a daemon in the midst of its end, unless it is faster.
void EndAndStop(int pid) {
  const std::string status = "/proc/" + std::to_string(pid) + "/status";
  kill(pid, SIGTERM);
  // It ignores SIGTERM, signal 15, once it has taken one.
  while (Lives(pid)) {
    const std::string text = base::ReadFile(status);
    const size_t ignored = text.find("SigIgn:\t");
    if (ignored == std::string::npos) continue;
    if ((std::stoull(text.substr(ignored + 8, 16), nullptr, 16) >> 14 & 1) != 0) break;
  }
  kill(pid, SIGSTOP);
}

// Such daemons still run, and may answer, for some seconds.
TEST(VpodTest, UpDoesNotTakeDaemonsThatAreEndingForAPodThatIsUp) {
  TestPod pod(8, {"--agents", "processes"});
  const auto expect_up = [&](const std::vector<int>& ended) {
    const Outcome up = pod.Run({"vpod", "up"});
    ASSERT_EQ(up.code, 0) << up.err;
    EXPECT_NE(up.out.find("POD8 is up: "), std::string::npos) << up.out;
    for (const int pid : ended) EXPECT_FALSE(Lives(pid));
    EXPECT_EQ(pod.Run({"vpod", "status"}).code, 0);
  };
  const int server = pod.ServerPid(), first = pod.AgentPid();
  const int slow = pod.AgentPid(1);
  EndAndStop(slow);
  expect_up({slow});
  EXPECT_EQ(pod.ServerPid(), server);
  EXPECT_EQ(pod.AgentPid(), first);
  const std::vector<int> all = {server, first, pod.AgentPid(1)};
  for (const int pid : all) kill(pid, SIGTERM);
  expect_up(all);
}

// The rest of the POD goes on, with its jobs.
TEST(VpodTest, UpStartsOnlyTheAgentThatIsMissing) {
  TestPod pod(16, {"--agents", "processes"});
  pod.CreatePartition("p16", 16);
  const int server = pod.ServerPid(), first = pod.AgentPid(), third = pod.AgentPid(2);
  KillHard(third);
  const Outcome half = pod.Run({"vpod", "status"});
  EXPECT_NE(half.out.find("in part"), std::string::npos) << half.out;
  EXPECT_NE(half.out.find("(1 of 4 missing: see " + pod.home() + "/vipu-agent.2.log)"),
            std::string::npos)
      << half.out;
  const Outcome ill = pod.Run({"vpod", "doctor"});
  EXPECT_NE(ill.out.find("FAIL vipu-agent.2 does not run"), std::string::npos) << ill.out;
  // A job that may wait for the agent.
  ASSERT_EQ(pod.Shell("until vipu list partitions | grep -q ERROR; do sleep 0.1; done").code, 0);
  const Outcome refused = pod.Run({"vipu", "reset", "partition", "p16"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE((refused.out + refused.err).find("does not answer"), std::string::npos) << refused.out;
  const auto job =
      pod.Start({"poprun", "--vipu-partition", "p16", "--vipu-partition-attempts", "50",
                 "--reset-partition", "yes", "--num-replicas", "16", "replica_job"});
  // Without options: those that it was brought up with.
  const Outcome up = pod.Run({"vpod", "up"});
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_EQ(pod.ServerPid(), server);
  EXPECT_EQ(pod.AgentPid(), first);
  EXPECT_NE(pod.AgentPid(2), third);
  EXPECT_EQ(pod.Shell("vipu wait partition p16 --for active && vpod doctor").code, 0);
  const Outcome done = job->Wait();
  EXPECT_EQ(done.code, 0) << done.err;
}

// A program may be missing, for example while it is built again.
TEST(VpodTest, UpThatFailsEndsNothingThatLived) {
  TestPod pod(8, {"--agents", "processes"});
  const int server = pod.ServerPid(), first = pod.AgentPid(), second = pod.AgentPid(1);
  KillHard(second);
  // Where the log of the second should be nothing can be written.
  fs::remove(pod.home() + "/vipu-agent.1.log");
  fs::create_directory(pod.home() + "/vipu-agent.1.log");
  ExpectRefused(pod.Run({"vpod", "up"}), 1, "vipu-agent");
  EXPECT_TRUE(Lives(server) && Lives(first));
  ExpectRefused(pod.Shell(Up(pod, "--pod 8 --agents one")), 1, ", agents processes,");
  fs::remove(pod.home() + "/vipu-agent.1.log");
  ExpectRefused(pod.Shell(Up(pod, "--pod 8")), 1, "memory limit 4096 MiB");  // which one holds
  EXPECT_EQ(pod.Run({"vpod", "up", "--pod", "8", "--agents", "processes"}).code, 0);
  EXPECT_TRUE(Lives(server) && Lives(first));
}

TEST(VpodTest, WrongSizesAreRefused) {
  TestPod pod(0);
  for (const char* size : {"0", "1", "2", "3", "24", "100", "131072"}) {
    ExpectRefused(
        pod.Shell(Up(pod, std::string("--pod ") + size)), 2,
        std::string("--pod ") + size + ": the size must be a power of two from 4 to 65536");
  }
  for (const char* size : {"-4", "many", "16x", "99999999999"}) {
    ExpectRefused(pod.Shell(Up(pod, std::string("--pod ") + size)), 2, "--pod");
  }
  ExpectRefused(pod.Shell(Up(pod, "--machine-type m3000")), 2, "m3000");
  ExpectRefused(pod.Run({"vpod", "up", "--api-port", "0"}), 2, "--api-port");
  ExpectRefused(pod.Run({"vpod", "up", "--api-port", "65536"}), 2, "--api-port");
  ExpectRefused(pod.Run({"vpod", "up", "--memory-limit", "-3"}), 2, "--memory-limit");
  ExpectRefused(pod.Run({"vpod", "up", "--memory-limit", "0"}), 2, "--memory-limit");
  EXPECT_FALSE(fs::exists(pod.home())) << "a refusal left something behind";
}

TEST(VpodTest, APortInUseIsNamedAndNothingIsLeft) {
  TestPod pod(0);
  const base::UniqueFd listener = ListenOn(pod.port());
  ExpectRefused(pod.Shell(Up(pod, "--pod 4")), 1,
                "port " + std::to_string(pod.port()) + " is in use");
  EXPECT_EQ(DaemonsOf(pod), 0);
  EXPECT_FALSE(fs::exists(pod.home() + "/vipu-server.pid"));
  EXPECT_FALSE(fs::exists(pod.home() + "/vipu-agent.pid"));
  EXPECT_EQ(pod.Run({"vpod", "status"}).code, 1);
}

TEST(VpodTest, ThePortOfAnotherPodIsNotTakenForOnesOwn) {
  TestPod other(4), pod(0);
  other.CreatePartition("p4", 4);
  const std::string agents = "vipu-admin list agents | cut -d '|' -f 1-6";
  const std::string discovered = "vipu-admin discover agents | cut -d '|' -f 1-3";
  const std::string before = other.Shell(agents).out + other.Shell(discovered).out;
  ExpectRefused(pod.Shell(Up(other, "--pod 16")), 1,
                "port " + std::to_string(other.port()) + " is in use");
  EXPECT_EQ(other.Shell(agents).out + other.Shell(discovered).out, before);
  EXPECT_EQ(DaemonsOf(pod), 0);
  EXPECT_EQ(other.Shell("vipu list partitions | grep -c ACTIVE").out, "1\n");
}

// At once, too: neither takes the port that the other is about to listen on.
TEST(VpodTest, PodsTakeFreePortsByThemselves) {
  TestPod one(0), two(0), three(0);
  const auto port_of = [](TestPod& pod) {
    return std::stoi(
        pod.Shell("sed -n 's/^api-port=\"\\(.*\\)\"/\\1/p' $VPOD_HOME/vipu-cli.hcl").out);
  };
  ASSERT_EQ(one.Run({"vpod", "up", "--pod", "4", "--memory-limit", "2048"}).code, 0);
  EXPECT_GE(port_of(one), 8090);
  const auto second = two.Start({"vpod", "up", "--pod", "4", "--memory-limit", "2048"});
  const auto third = three.Start({"vpod", "up", "--pod", "4", "--memory-limit", "2048"});
  for (const auto* started : {&second, &third}) {
    const Outcome up = (*started)->Wait();
    EXPECT_EQ(up.code, 0) << up.err;
  }
  EXPECT_EQ(std::set<int>({port_of(one), port_of(two), port_of(three)}).size(), 3u);
  for (TestPod* pod : {&one, &two, &three}) {
    EXPECT_EQ(pod->Shell("eval \"$(vpod env)\"; vipu-admin list agents | grep -c ' Up '").out,
              "1\n");
  }
  // A POD that is restored keeps its port, and says so when it cannot.
  const int port = port_of(two);
  ASSERT_TRUE(EndProcess(two.ServerPid(), SIGKILL));
  {
    const base::UniqueFd listener = ListenOn(port);
    ExpectRefused(two.Run({"vpod", "up"}), 1,
                  "port " + std::to_string(port) + " is in use, which is that of the POD");
  }
  ASSERT_EQ(two.Run({"vpod", "up"}).code, 0);
  EXPECT_EQ(port_of(two), port);
}

TEST(VpodTest, ThePortOfTheMetricsCanBeChosen) {
  TestPod pod(0);
  const std::string port = std::to_string(FreePort());
  ExpectRefused(pod.Shell(Up(pod, "--metrics-port " + std::to_string(pod.port()))), 2,
                "--metrics-port " + std::to_string(pod.port()) + " is the controller's port");
  {
    const base::UniqueFd listener = ListenOn(std::stoi(port));
    ExpectRefused(pod.Shell(Up(pod, "--pod 4 --metrics-port " + port)), 1,
                  "port " + port + " is in use; give another with --metrics-port");
    EXPECT_EQ(DaemonsOf(pod), 0);
  }
  ASSERT_EQ(pod.Shell(Up(pod, "--pod 4 --metrics-port " + port)).code, 0);
  const Outcome metrics = pod.Shell(
      "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:" + port +
      "/metrics\").read().decode())' | grep -c '^vipu_agents'");
  EXPECT_EQ(metrics.out, "3\n") << metrics.err;
  ExpectRefused(pod.Shell("vpod up --metrics-port 1"), 1, "metrics port " + port);
  // While nobody serves them it can change; without the option it stays.
  ASSERT_TRUE(EndProcess(pod.ServerPid(), SIGKILL));
  ASSERT_EQ(pod.Run({"vpod", "up"}).code, 0);
  EXPECT_EQ(pod.Shell("vpod status | grep -c ':" + port + "/metrics$'").out, "1\n");
}

TEST(VpodTest, DownTwice) {
  TestPod pod;
  pod.CreatePartition("p4", 4);
  const int server = pod.ServerPid(), agent = pod.AgentPid();
  const Outcome first = pod.Run({"vpod", "down"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "POD in " + pod.home() + " is down.\n");
  EXPECT_FALSE(Lives(server) || Lives(agent));
  const Outcome second = pod.Run({"vpod", "down"});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.out, "no POD runs in " + pod.home() + "\n");
  EXPECT_EQ(second.err, "");
  // Its partitions are gone.
  ASSERT_EQ(pod.Shell(Up(pod, "--pod 4")).code, 0);
  EXPECT_EQ(pod.Shell("vipu list partitions | grep -c p4").out, "0\n");
  EXPECT_EQ(pod.Shell("gc-info -l 2>/dev/null").out, "Graphcore device listing:\n");
}

TEST(VpodTest, DownEndsRunningJobs) {
  TestPod pod;
  pod.CreatePartition("p4", 4);
  const auto job = pod.Start({"replica_job", "--runs", "1000000", "--pause-ms", "5"});
  ASSERT_TRUE(job->WaitForOutput("run 0 loss")) << job->Err();
  ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
  const Outcome outcome = job->Wait(std::chrono::seconds(60));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("replica_job: error: "), std::string::npos) << outcome.err;
}

TEST(VpodTest, AHomeThatCannotBeWrittenIsNamed) {
  TestPod pod(0);
  // A file where a directory should be stops even the superuser.
  std::ofstream(pod.directory() + "/file") << "not a directory\n";
  const std::string home = pod.directory() + "/file/pod";
  ExpectRefused(pod.Shell("VPOD_HOME=" + home + " " + Up(pod, "--pod 4")), 1,
                "cannot write to " + home);
  ExpectRefused(pod.Shell("VPOD_HOME=/proc/pod " + Up(pod, "--pod 4")), 1,
                "cannot write to /proc/pod");
  if (geteuid() != 0) {
    fs::create_directory(pod.directory() + "/locked");
    chmod((pod.directory() + "/locked").c_str(), 0500);
    ExpectRefused(pod.Shell("VPOD_HOME=" + pod.directory() + "/locked " + Up(pod, "--pod 4")), 1,
                  "cannot write to ");
  }
  EXPECT_EQ(pod.Shell("VPOD_HOME=" + home + " vpod status").out, "no POD in " + home + "\n");
  EXPECT_EQ(DaemonsOf(pod), 0);
}

TEST(VpodTest, DamagedStateIsNamedAndClearedAway) {
  TestPod pod(4);
  KillHard(pod.AgentPid());
  KillHard(pod.ServerPid());
  std::ofstream(pod.home() + "/pod.json") << "{ damaged";
  for (const char* command : {"env", "status"})
    ExpectRefused(pod.Run({"vpod", command}), 1, "pod.json is damaged");
  fs::remove(pod.home() + "/pod.json");
  fs::create_directory(pod.home() + "/pod.json");
  for (const char* command : {"env", "status"})
    ExpectRefused(pod.Run({"vpod", command}), 1, "pod.json is damaged");
  EXPECT_EQ(pod.Run({"vpod", "list"}).code, 0);
  ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
  const Outcome up = pod.Shell(Up(pod, "--pod 4"));
  EXPECT_EQ(up.code, 0) << up.err;
}

// A file that cannot be read is neither gone nor damaged, so that no message tells to remove it.
TEST(VpodTest, StateThatCannotBeReadIsNotTakenForGone) {
  TestPod pod(4);
  // To the superuser a file is closed only without these capabilities.
  const auto run = [&](std::vector<std::string> words) {
    const std::vector<std::string> without = {"setpriv", "--bounding-set",
                                              "-dac_override,-dac_read_search"};
    if (geteuid() == 0) words.insert(words.begin(), without.begin(), without.end());
    return pod.Run(words);
  };
  const std::string shape = pod.home() + "/pod.json", log = pod.home() + "/vipu-server.log";
  const std::string closed = pod.directory() + "/closed";
  fs::create_directory(closed);
  for (const std::string& path : {shape, log, closed}) ASSERT_EQ(chmod(path.c_str(), 0), 0);
  for (const char* command : {"env", "status", "up"})
    ExpectRefused(run({"vpod", command}), 1, "cannot read " + shape + ": Permission denied\n");
  EXPECT_EQ(run({"vpod", "doctor"}).out.find("'vpod down'"), std::string::npos);
  ExpectRefused(run({"vpod", "logs"}), 1, "cannot read " + log + ": Permission denied\n");
  const Outcome backup = run({"vipu-admin", "backup", closed + "/b"});
  EXPECT_EQ(backup.code, 1);
  EXPECT_EQ(backup.err, "backup (" + closed + "/b): failed. cannot write " + closed +
                            "/b: Permission denied\n");
  for (const std::string& path : {shape, log, closed}) chmod(path.c_str(), 0700);
  EXPECT_EQ(pod.Run({"vpod", "status"}).code, 0);
}

TEST(VpodTest, BowMachinesRunFaster) {
  TestPod pod(0);
  const Outcome up = pod.Shell(Up(pod, "--pod 4 --machine-type bow2000"));
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_NE(up.out.find("1 machine (bow2000)"), std::string::npos) << up.out;
  pod.CreatePartition("p4", 4);
  EXPECT_EQ(pod.Shell("gc-info --tile-clock-speed").out, "1850MHz\n");
  EXPECT_EQ(pod.Shell("gc-info -i -d 0 | grep -E 'clock|board type'").out,
            "  board type: Bow-2000\n  clock: 1850MHz\n");
  EXPECT_NE(pod.Shell("gc-monitor").out.find("|Bow-2000|"), std::string::npos)
      << pod.Shell("gc-monitor").out;
  const Outcome job = pod.Run({"replica_job", "--runs", "2"});
  EXPECT_EQ(job.code, 0) << job.err;
}

}  // namespace
}  // namespace vpod::testing
