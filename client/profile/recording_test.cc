// Profiles that cannot be written, or not by everybody: full disks, directories that go, processes
// that are killed, instances that are refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/compiler/compiler.h"
#include "client/profile/profile.h"
#include "client/pva/pva.h"
#include "client/session/ipu_model.h"
#include "client/session/profiles.h"
#include "client/session/session.h"
#include "device/model/cost.h"

namespace vpod::profile {
namespace {

namespace fs = std::filesystem;
using graph::Graph;
using program::v1::FLOAT32;
using program::v1::INT32;
using testing::HasSubstr;

class RecordingTest : public testing::Test {
 protected:
  RecordingTest()
      : directory_(absl::StrCat(testing::TempDir(), "/recording.", getpid())),
        profile_(directory_ + "/run/profile.pop") {
    fs::create_directories(directory_);
    SetOptions("");
  }
  ~RecordingTest() override {
    unsetenv("POPLAR_ENGINE_OPTIONS");
    fs::remove_all(directory_);
  }

  void SetOptions(const std::string& more) const {
    setenv("POPLAR_ENGINE_OPTIONS",
           absl::StrCat(R"({"autoReport.all": "true", "autoReport.directory": ")", directory_, "\"",
                        more, "}")
               .c_str(),
           1);
  }
  // A program of some thousand steps; every tile gets all indices, so that many do not fit.
  static absl::StatusOr<compiler::Compiled> Compile(int64_t indices = 4) {
    Graph graph;
    const graph::Tensor table = graph.Buffer("table", {FLOAT32, {4}}, {1, 2, 3, 4});
    graph.Output("y", graph.Mean(graph.Gather(table, graph.Input("i", {INT32, {indices}}), 0)));
    compiler::CompileOptions options;
    options.programs = {{.name = "run", .device_iterations = 1000}};
    return compiler::Compile(graph, options);
  }
  static absl::StatusOr<std::unique_ptr<session::Session>> Open() {
    auto compiled = Compile();
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return session::Session::Create(*session::CreateIpuModel({.compute_threads = 1}), *compiled);
  }
  // The log, a line an element.
  static std::vector<std::string> Logged() {
    return absl::StrSplit(testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
  }

  const std::string directory_, profile_;
};

// On a file system of its own, where that is permitted.
class FullDiskTest : public RecordingTest {
 protected:
  void SetUp() override {
    mounted_ = mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=400k") == 0;
    if (!mounted_) GTEST_SKIP() << "mounting is not permitted here";
  }
  void TearDown() override {
    if (mounted_) umount2(directory_.c_str(), MNT_DETACH);
  }
  void FillDisk() const {
    std::ofstream file(directory_ + "/filler", std::ios::binary);
    while (file.write(std::string(1024, 'x').data(), 1024).flush()) continue;
  }

 private:
  bool mounted_ = false;
};

TEST_F(FullDiskTest, RecordingStopsWithOneLineAndTheProgramGoesOn) {
  const auto session = Open();
  ASSERT_TRUE(session.ok()) << session.status();
  FillDisk();
  testing::internal::CaptureStderr();
  for (int run = 0; run < 3; ++run) EXPECT_TRUE((*session)->Run("run").ok());
  const std::vector<std::string> logged = Logged();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_THAT(logged[0],
              HasSubstr(absl::StrCat("no more runs are recorded in profiles: ", profile_, ": ")));
  EXPECT_THAT(logged[0], HasSubstr("full"));
  const auto report = pva::OpenReport(profile_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->runs.empty() && report->steps[0].empty());
  EXPECT_EQ(report->first_run_lost, 0u);
}

TEST_F(FullDiskTest, RunsUntilTheDiskIsFullAreKept) {
  SetOptions(R"(, "autoReport.executionProfileProgramRunCount": "1000000")");
  auto session = Open();
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->Run("run").ok());
  FillDisk();
  testing::internal::CaptureStderr();
  for (int run = 0; run < 3; ++run) EXPECT_TRUE((*session)->Run("run").ok());
  session->reset();
  const std::vector<std::string> logged = Logged();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_THAT(logged[0], HasSubstr(absl::StrCat(profile_, ": ")));
  const auto report = pva::OpenReport(profile_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_FALSE(report->runs.empty() || report->steps[0].empty());
  EXPECT_EQ(report->first_run_lost, report->runs.size());
}

TEST_F(FullDiskTest, WithoutAProfileTheProgramGoesOn) {
  FillDisk();
  testing::internal::CaptureStderr();
  const auto session = Open();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Run("run").ok());
  const std::vector<std::string> logged = Logged();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_THAT(logged[0], HasSubstr("the profile that POPLAR_ENGINE_OPTIONS asks for: cannot "));
  EXPECT_THAT(logged[0], HasSubstr(directory_));
  EXPECT_THAT(logged[0], HasSubstr("; the program goes on without it"));
  EXPECT_FALSE(fs::exists(profile_));
}

TEST_F(RecordingTest, ADirectoryThatIsRemovedIsNamedOnce) {
  SetOptions(R"(, "autoReport.executionProfileProgramRunCount": "9")");
  auto session = Open();
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->Run("run").ok());
  EXPECT_EQ(pva::OpenReport(profile_)->first_run_lost, std::nullopt);
  fs::remove_all(directory_);
  testing::internal::CaptureStderr();
  for (int run = 0; run < 3; ++run) EXPECT_TRUE((*session)->Run("run").ok());
  session->reset();
  const std::vector<std::string> logged = Logged();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_THAT(logged[0], HasSubstr(profile_));
}

// The file is open between runs, without a lock.
TEST_F(RecordingTest, ProfilesAreReadWhileRunsAreRecorded) {
  SetOptions(R"(, "autoReport.executionProfileProgramRunCount": "4")");
  const auto session = Open();
  ASSERT_TRUE(session.ok()) << session.status();
  for (size_t run = 1; run <= 6; ++run) {
    EXPECT_TRUE((*session)->Run("run").ok());
    const auto report = pva::OpenReport(profile_);
    ASSERT_TRUE(report.ok()) << report.status();
    // Short runs may wait for others, the first and the last do not.
    EXPECT_GE(report->runs.size(), run < 4 ? 1u : 4u);
    EXPECT_LE(report->runs.size(), std::min<size_t>(run, 4));
    EXPECT_FALSE(fs::exists(profile_ + "-journal"));
  }
}

// It has the handles of its parent, which goes on.
TEST_F(RecordingTest, TheChildOfAForkWritesNothing) {
  const auto compiled = Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  auto profiler = Profiler::Create(compiled->executable,
                                   {.directory = directory_, .execution = true, .runs = 100});
  ASSERT_TRUE(profiler.ok()) << profiler.status();
  for (int run = 0; run < 5; ++run) ASSERT_TRUE((*profiler)->AddRun(0, base::Cycles(1)).ok());
  const pid_t child = fork();
  if (child == 0) {
    const bool added = (*profiler)->AddRun(0, base::Cycles(1)).ok();
    profiler->reset();
    _exit(added ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  for (int run = 0; run < 5; ++run) ASSERT_TRUE((*profiler)->AddRun(0, base::Cycles(1)).ok());
  ASSERT_TRUE((*profiler)->Finish().ok());
  EXPECT_EQ(pva::OpenReport(profile_)->runs.size(), 10u);
}

// Nothing is written beside the profile that has taken its place.
TEST_F(RecordingTest, AProfileThatIsReplacedBetweenRunsIsLeftAlone) {
  SetOptions(R"(, "autoReport.executionProfileProgramRunCount": "9")");
  auto first = Open();
  ASSERT_TRUE((*first)->Run("run").ok());
  auto second = Open();
  ASSERT_TRUE((*second)->Run("run").ok());
  testing::internal::CaptureStderr();
  for (int run = 0; run < 3; ++run) EXPECT_TRUE((*first)->Run("run").ok());
  first->reset();
  const std::vector<std::string> logged = Logged();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_THAT(logged[0], HasSubstr("is another session's now"));
  ASSERT_TRUE((*second)->Run("run").ok());
  second->reset();
  const auto report = pva::OpenReport(profile_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->runs.size(), 2u);
  EXPECT_EQ(report->first_run_lost, std::nullopt);
}

// Many short runs are written together, and none is lost when the session ends.
TEST_F(RecordingTest, RunsThatWaitAreWrittenAtTheEnd) {
  SetOptions(R"(, "autoReport.executionProfileProgramRunCount": "1000")");
  auto session = Open();
  ASSERT_TRUE(session.ok()) << session.status();
  for (int run = 0; run < 200; ++run) ASSERT_TRUE((*session)->Run("run").ok());
  session->reset();
  const auto report = pva::OpenReport(profile_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->runs.size(), 200u);
  EXPECT_EQ(report->first_run_lost, std::nullopt);
}

TEST_F(RecordingTest, ProfilesOfOtherSessionsAreLeftAlone) {
  const auto first = Open();
  ASSERT_TRUE(Open().ok());
  testing::internal::CaptureStderr();
  for (int run = 0; run < 3; ++run) EXPECT_TRUE((*first)->Run("run").ok());
  const std::vector<std::string> logged = Logged();
  ASSERT_EQ(logged.size(), 1u);
  EXPECT_THAT(logged[0], HasSubstr("is another session's now"));
  EXPECT_EQ(pva::OpenReport(profile_)->first_run_lost, std::nullopt);
}

// A process that was killed cannot remove what it had begun; one that lives still needs it, even if
// its number is that of no process here, as in another container.
TEST_F(RecordingTest, LeftoversThatNobodyHoldsAreRemoved) {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  const auto unfinished = [&](const std::string& rest) {
    return absl::StrCat(profile_, ".", host, ".", rest);
  };
  const std::string left = unfinished("999999999.a1b2"),
                    of_a_number_in_use = unfinished(absl::StrCat(getppid(), ".a1b2")),
                    held = unfinished("999999999.c3d4"), copy = unfinished("bak"),
                    elsewhere = absl::StrCat(profile_, ".not-", host, ".999999999.a1b2");
  fs::create_directories(directory_ + "/run");
  for (const std::string& file : {left, of_a_number_in_use, held, copy, elsewhere})
    std::ofstream(file) << "half";
  const int lock = open(held.c_str(), O_RDONLY);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  ASSERT_TRUE(Open().ok());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(of_a_number_in_use));
  EXPECT_TRUE(fs::exists(held));
  EXPECT_TRUE(fs::exists(copy));
  EXPECT_TRUE(fs::exists(elsewhere));
  close(lock);
  ASSERT_TRUE(Open().ok());
  EXPECT_FALSE(fs::exists(held));
}

// Sessions that begin at the same time leave each other's files alone.
TEST_F(RecordingTest, SeveralSessionsWriteAProfileAtOnce) {
  const auto compiled = Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) EXPECT_TRUE(session::WriteProfiles(*compiled, {}).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(pva::OpenReport(profile_).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_ + "/run"), {}), 1);
}

// The IPUs of an instance of a job, which refuse what does not fit.
class RefusingDevice : public session::Device {
 public:
  uint32_t local_replicas() const override { return 1; }
  double clock_hz() const override { return 1e9; }
  session::JobPart job_part() const override { return {.total_replicas = 2, .first_replica = 1}; }
  bool is_model() const override { return false; }
  std::string name() const override { return "device"; }
  absl::Status Load(std::shared_ptr<const program::Executable> executable,
                    const session::LoadOptions&) override {
    return model::CheckMemory(*executable, {.num_replicas = 2});
  }
  std::byte* Slot(uint32_t) override { return nullptr; }
  absl::StatusOr<base::Cycles> Run(uint32_t, uint32_t) override { return base::Cycles(0); }
  void Cancel() override {}
  absl::Status WriteVariable(absl::string_view, absl::string_view,
                             std::optional<uint32_t>) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReadVariable(absl::string_view, uint32_t) override { return ""; }
  absl::StatusOr<std::vector<base::Cycles>> Counters() override {
    return std::vector<base::Cycles>();
  }
};

// An instance that is refused may end all others: before that, each has written the profile. What
// does not fit where is said once.
TEST_F(RecordingTest, EveryInstanceThatIsRefusedHasWrittenAProfile) {
  testing::internal::CaptureStderr();
  const auto compiled = Compile(/*indices=*/200000);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  const absl::Status refused =
      session::Session::Create(std::make_unique<RefusingDevice>(), *compiled).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(refused.message()),
            "Out of memory: Cannot fit all variable data onto one or more tiles. Profile saved "
            "to: " +
                profile_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("To try: "));
  EXPECT_TRUE(pva::OpenReport(profile_).ok());
}

TEST_F(RecordingTest, OnlyTheFirstInstanceWritesWhatFits) {
  const auto compiled = Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_TRUE(session::Session::Create(std::make_unique<RefusingDevice>(), *compiled).ok());
  EXPECT_FALSE(fs::exists(profile_));
}

// A program that only compiles has no device.
TEST_F(RecordingTest, WhatIsCompiledOnlyHasAProfileWithoutRuns) {
  const auto compiled = Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  ASSERT_TRUE(
      session::WriteProfiles(*compiled, {.part = {.total_replicas = 4, .first_replica = 2}}).ok());
  EXPECT_FALSE(fs::exists(profile_));
  ASSERT_TRUE(
      session::WriteProfiles(*compiled, {.is_model = true, .part = {.total_replicas = 4}}).ok());
  const auto report = pva::OpenReport(profile_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->target.type, "IPU_MODEL");
  EXPECT_EQ(report->target.num_replicas, 4u);
  EXPECT_FALSE(report->memory.empty());
  EXPECT_TRUE(report->runs.empty());
}

}  // namespace
}  // namespace vpod::profile
