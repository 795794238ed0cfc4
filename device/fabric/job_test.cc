#include "device/fabric/job.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "device/fabric/collectives.h"
#include "device/fabric/transport.h"

namespace vpod::fabric {
namespace {

using std::chrono::seconds;

// An instance of the job under test, which records the notices and failures that it gets.
struct Instance {
  std::vector<std::string> notices;
  std::optional<absl::Status> failure;
  std::optional<absl::Status> started;

  JobMember Member(uint32_t index, uint32_t offset, uint32_t local) {
    JobMember member;
    member.instance = index;
    member.replica_offset = offset;
    member.local_replicas = local;
    member.process = "pid " + std::to_string(100 + index) + " on host";
    member.notice = [this](const std::string& text) { notices.push_back(text); };
    member.failed = [this](const absl::Status& cause, bool, uint32_t) { failure = cause; };
    return member;
  }
};

class JobTest : public testing::Test {
 protected:
  void JoinAll() {
    for (uint32_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(job_->Join(shape_, instances_[i].Member(i, i * 4, 4)).ok());
    }
  }
  void LoadAll() {
    for (uint32_t i = 0; i < 4; ++i) job_->Loaded(i, 0, "c3d4c3d4c3d4");
  }
  void Start(uint32_t i, uint64_t run = 0, uint32_t program = 0) {
    job_->StartRun(i, run, program, [this, i](absl::Status s) { instances_[i].started = s; });
  }
  // Lets the replicas of instance i meet, and adds their results to `results`.
  void MeetAs(uint32_t i, std::vector<absl::Status>& results, RendezvousAction action = Finish()) {
    for (uint32_t r = i * 4; r < i * 4 + 4; ++r) {
      job_->Meet(
          {0, 0, 0, {0, 1, 16}}, r, i, this, [&results](absl::Status s) { results.push_back(s); },
          action);
    }
  }
  static RendezvousAction Finish() {
    return [](const std::vector<void*>&, std::function<void(absl::Status)> finish) {
      finish(absl::OkStatus());
    };
  }

  const JobShape shape_{4, 16, 1};
  std::shared_ptr<Job> job_ = std::make_shared<Job>("j", shape_);
  Instance instances_[4];
};

TEST_F(JobTest, StartsWhenAllInstancesAreThereAndLoaded) {
  JoinAll();
  Start(0);
  EXPECT_FALSE(instances_[0].started.has_value());
  LoadAll();
  ASSERT_TRUE(instances_[0].started.has_value());
  EXPECT_TRUE(instances_[0].started->ok());
}

TEST_F(JobTest, DifferentProgramsFailEveryInstanceByName) {
  JoinAll();
  for (uint32_t i = 0; i < 4; ++i) job_->Loaded(i, 0, i == 2 ? "a1b2a1b2ffff" : "c3d4c3d4ffff");
  Start(0);
  const std::string text =
      "the instances run different programs: instance 2 loaded a1b2a1b2…, instances 0, 1, 3 loaded "
      "c3d4c3d4…";
  EXPECT_EQ(instances_[0].started->message(), text);
  for (const Instance& instance : instances_) EXPECT_EQ(instance.failure->message(), text);
}

TEST_F(JobTest, OverlappingReplicasAreNamed) {
  ASSERT_TRUE(job_->Join(shape_, instances_[0].Member(0, 0, 4)).ok());
  EXPECT_EQ(job_->Join(shape_, instances_[1].Member(1, 2, 4)).message(),
            "instance 1 covers replicas 2 to 5, instance 0 covers replicas 0 to 3: they overlap");
  EXPECT_TRUE(instances_[0].failure.has_value());
}

TEST_F(JobTest, ReplicasBeyondTheTotalAreNamed) {
  EXPECT_EQ(job_->Join(shape_, instances_[0].Member(0, 14, 4)).message(),
            "instance 0 covers replicas 14 to 17, but the job has 16");
}

TEST_F(JobTest, ContradictingShapesAndDuplicatesAreNamed) {
  ASSERT_TRUE(job_->Join(shape_, instances_[0].Member(0, 0, 4)).ok());
  auto other = std::make_shared<Job>("k", shape_);
  EXPECT_FALSE(other->Join({4, 8, 1}, instances_[1].Member(1, 4, 4)).ok());
  EXPECT_EQ(job_->Join(shape_, instances_[1].Member(0, 4, 4)).message(),
            "instance 0 joined twice: pid 100 on host and pid 100 on host");
}

TEST_F(JobTest, MissingInstanceIsNamedAndThenGivenUp) {
  for (uint32_t i : {0, 1, 3}) {
    ASSERT_TRUE(job_->Join(shape_, instances_[i].Member(i, i * 4, 4)).ok());
    job_->Loaded(i, 0, "c3d4");
    Start(i);
  }
  const auto now = Job::Clock::now();
  job_->Tick(now + seconds(4), seconds(5), seconds(60));
  EXPECT_TRUE(instances_[0].notices.empty());
  job_->Tick(now + seconds(6), seconds(5), seconds(60));
  job_->Tick(now + seconds(7), seconds(5), seconds(60));
  for (uint32_t i : {0, 1, 3}) {
    EXPECT_EQ(instances_[i].notices, std::vector<std::string>{"waiting for 1 of 4 instances: 2"});
  }
  job_->Tick(now + seconds(70), seconds(5), seconds(60));
  EXPECT_EQ(instances_[3].started->message(), "instance 2 of 4 did not join within 60 s");
}

TEST_F(JobTest, ARendezvousCompletesForAllOrNone) {
  JoinAll();
  LoadAll();
  std::vector<absl::Status> results;
  int actions = 0;
  const RendezvousAction action = [&](const std::vector<void*>& all,
                                      std::function<void(absl::Status)> finish) {
    ++actions;
    EXPECT_EQ(all.size(), 16u);
    finish(absl::OkStatus());
  };
  for (uint32_t i : {2, 0, 3}) MeetAs(i, results, action);
  EXPECT_TRUE(results.empty());
  MeetAs(1, results, action);
  EXPECT_EQ(results.size(), 16u);
  EXPECT_EQ(actions, 1);
}

TEST_F(JobTest, LostInstanceFailsWaitingAndLaterInstances) {
  JoinAll();
  LoadAll();
  std::vector<absl::Status> results;
  MeetAs(0, results);
  job_->Leave(1, 0, /*lost=*/true);
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0].message(), "instance 1 (pid 101 on host) was lost");
  MeetAs(2, results);
  EXPECT_EQ(results.size(), 8u);
  EXPECT_EQ(results[7].message(), "instance 1 (pid 101 on host) was lost");
  EXPECT_FALSE(instances_[1].failure.has_value());
  EXPECT_TRUE(instances_[3].failure.has_value());
}

TEST_F(JobTest, OrderlyLeavingFailsOnlyInstancesThatNeedIt) {
  JoinAll();
  LoadAll();
  job_->Leave(3, 0, /*lost=*/false);
  EXPECT_FALSE(instances_[0].failure.has_value());
  std::vector<absl::Status> results;
  MeetAs(0, results);
  ASSERT_FALSE(results.empty());
  EXPECT_EQ(results[0].message(),
            "instance 3 (pid 103 on host) left the job before run 0 was complete");
}

TEST_F(JobTest, AnInstanceThatEndsBeforeItJoinsIsNamedToThoseThatWait) {
  for (uint32_t i : {0u, 1u, 3u}) {
    ASSERT_TRUE(job_->Join(shape_, instances_[i].Member(i, i * 4, 4)).ok());
    job_->Loaded(i, 0, "c3d4c3d4c3d4");
  }
  Start(0);
  job_->InstanceEnded(3, "pid 103 on host");  // of which the job knows itself
  job_->InstanceEnded(4, "pid 104 on host");  // which is none of the job's
  EXPECT_FALSE(instances_[0].started.has_value());
  job_->InstanceEnded(2, "pid 102 on host");
  const absl::Status expected =
      absl::AbortedError("instance 2 (pid 102 on host) ended before it joined the job");
  for (uint32_t i : {0u, 1u, 3u}) EXPECT_EQ(instances_[i].failure, expected) << i;
  EXPECT_EQ(instances_[0].started, expected);
}

TEST_F(JobTest, AnInstanceThatHasEndedIsNamedToThoseThatWaitLater) {
  job_->InstanceEnded(2, "pid 102 on host");
  for (uint32_t i : {0u, 1u, 3u})
    ASSERT_TRUE(job_->Join(shape_, instances_[i].Member(i, i * 4, 4)).ok());
  EXPECT_FALSE(instances_[1].failure.has_value()) << "they need not wait for it";
  Start(1);
  EXPECT_EQ(instances_[1].started,
            absl::AbortedError("instance 2 (pid 102 on host) ended before it joined the job"));
}

// Another process of the instance, which its first one left behind.
TEST_F(JobTest, AnInstanceThatJoinsAfterAllIsWaitedFor) {
  job_->InstanceEnded(2, "pid 102 on host");
  JoinAll();
  Start(1);
  LoadAll();
  ASSERT_TRUE(instances_[1].started.has_value());
  EXPECT_TRUE(instances_[1].started->ok());
}

// The run ends for instances that wait for the one that has left, and for those that come later.
TEST_F(JobTest, LeavingEndsARunThatTheInstanceHasNotBegun) {
  JoinAll();
  LoadAll();
  std::vector<absl::Status> waiting, late;
  MeetAs(0, waiting);
  job_->Leave(3, 0, /*lost=*/false);
  MeetAs(1, late);
  const absl::Status left = absl::AbortedError("instance 3 (pid 103 on host) left the job");
  EXPECT_EQ(waiting, std::vector<absl::Status>(4, left));
  EXPECT_EQ(late, waiting);
}

TEST_F(JobTest, ACompletedRunIsNotDisturbedByLeaving) {
  JoinAll();
  LoadAll();
  std::vector<absl::Status> results;
  std::function<void(absl::Status)> finish;
  for (uint32_t i = 0; i < 4; ++i) {
    Start(i);
    MeetAs(i, results, [&](const std::vector<void*>&, std::function<void(absl::Status)> end) {
      finish = std::move(end);
    });
  }
  job_->Leave(3, 0, /*lost=*/false);
  finish(absl::OkStatus());
  EXPECT_EQ(results, std::vector<absl::Status>(16));
  for (const Instance& instance : instances_) EXPECT_FALSE(instance.failure.has_value());
}

// The error does not say that the programs differ: an instance that has left has no program.
TEST_F(JobTest, AnInstanceThatLeftIsNamedWhenOthersRunAnotherExecutable) {
  JoinAll();
  LoadAll();
  for (uint32_t i = 0; i < 4; ++i) Start(i);
  job_->Leave(3, 0, /*lost=*/false);
  std::vector<absl::Status> results;
  for (uint32_t i = 0; i < 3; ++i) job_->Loaded(i, 0, "e5f6e5f6");
  for (uint32_t i = 0; i < 3; ++i) {
    Start(i);
    EXPECT_TRUE(instances_[i].started->ok()) << *instances_[i].started;
  }
  MeetAs(0, results);
  ASSERT_FALSE(results.empty());
  EXPECT_EQ(results[0].message(),
            "instance 3 (pid 103 on host) left the job before run 0 was complete");
}

TEST_F(JobTest, StoppedInstanceIsNamedInARendezvousAndMayGoOn) {
  JoinAll();
  LoadAll();
  std::vector<absl::Status> results;
  for (uint32_t i : {0, 1, 3}) MeetAs(i, results);
  job_->Tick(Job::Clock::now() + seconds(6), seconds(5), seconds(60));
  EXPECT_EQ(instances_[0].notices, std::vector<std::string>{"waiting for 1 of 4 instances: 2"});
  MeetAs(2, results);
  EXPECT_EQ(results.size(), 16u);
  EXPECT_TRUE(results[0].ok());
}

TEST_F(JobTest, DifferentRunsAreNamed) {
  JoinAll();
  LoadAll();
  Start(0, 0, 0);
  Start(1, 0, 1);
  EXPECT_EQ(instances_[1].started->message(),
            "instance 1 runs program 1 as its run 0, instance 0 runs program 0");
}

// Each executable numbers its runs from 0, so that numbers are used again.
TEST_F(JobTest, AFailedRunIsForgottenWhenAnotherExecutableRuns) {
  JoinAll();
  LoadAll();
  for (uint32_t i = 0; i < 4; ++i) Start(i);
  job_->FailRun(0, absl::InvalidArgumentError("label 12 in row 3 is outside 0 to 9"));
  LoadAll();
  for (uint32_t i = 0; i < 4; ++i) {
    instances_[i].started.reset();
    Start(i);
  }
  for (const Instance& instance : instances_) EXPECT_EQ(instance.started, absl::OkStatus());
}

TEST_F(JobTest, AFailedRunFailsAllThatMeetInItAndNothingElse) {
  JoinAll();
  LoadAll();
  for (uint32_t i = 0; i < 3; ++i) Start(i);
  std::vector<absl::Status> waiting, late;
  MeetAs(0, waiting);
  const absl::Status cause = absl::InvalidArgumentError("label 12 in row 3 is outside 0 to 9");
  job_->FailRun(0, cause);
  EXPECT_EQ(waiting, std::vector<absl::Status>(4, cause));
  job_->FailRun(0, absl::InvalidArgumentError("another"));
  EXPECT_TRUE(job_->HasFailedRun(0));
  // One instance is late for a rendezvous, or for the run.
  MeetAs(1, late);
  EXPECT_EQ(late, waiting);
  Start(3);
  EXPECT_EQ(*instances_[3].started, cause);
  for (const Instance& instance : instances_) EXPECT_FALSE(instance.failure.has_value());
  // The next run is not affected.
  for (uint32_t i = 0; i < 4; ++i) {
    Start(i, 1);
    EXPECT_TRUE(instances_[i].started->ok());
  }
  EXPECT_FALSE(job_->HasFailedRun(0));
  std::vector<absl::Status> results;
  for (uint32_t r = 0; r < 16; ++r) {
    job_->Meet(
        {1, 0, 0, {0, 1, 16}}, r, r / 4, this, [&results](absl::Status s) { results.push_back(s); },
        Finish());
  }
  EXPECT_EQ(results, std::vector<absl::Status>(16));
}

TEST_F(JobTest, TheNumberOfALoneRunIsUsedAgain) {
  JoinAll();
  const uint64_t run = kFirstLoneRun + 5;
  job_->FailRun(run, absl::InvalidArgumentError("bad"));
  EXPECT_TRUE(job_->HasFailedRun(run));
  job_->ForgetFailedRun(run);
  EXPECT_FALSE(job_->HasFailedRun(run));
}

TEST_F(JobTest, AnInstanceWhoseRunsAllFailDoesNotRunAheadForEver) {
  JoinAll();
  LoadAll();
  uint64_t run = 0;
  for (; run < 10000 && !instances_[1].failure; ++run) {
    Start(0, run);
    job_->FailRun(run, absl::InvalidArgumentError("bad"));
  }
  EXPECT_EQ(run, 1001u);
  EXPECT_EQ(instances_[1].failure->message(),
            "more than 1000 runs have failed that some instances have not begun");
}

TEST_F(JobTest, LoneRunsAreNotCompared) {
  JoinAll();
  LoadAll();
  for (uint32_t program : {0, 1}) {
    Start(0, kFirstLoneRun, program);
    EXPECT_TRUE(instances_[0].started->ok()) << *instances_[0].started;
  }
  EXPECT_FALSE(instances_[0].failure.has_value());
}

// The group has one replica of each of instances 1, 2 and 3. Instance 0, which has left, is not
// needed.
TEST_F(JobTest, AGroupMeetsWithoutTheOthers) {
  JoinAll();
  LoadAll();
  job_->Leave(0, 0, /*lost=*/false);
  std::vector<absl::Status> results;
  size_t met = 0;
  const ReplicaGroup group{5, 4, 3};
  for (uint32_t i : {3, 1, 2}) {
    if (i == 2) {
      job_->Tick(Job::Clock::now() + seconds(6), seconds(5), seconds(60));
      EXPECT_EQ(instances_[1].notices, std::vector<std::string>{"waiting for 1 of 4 instances: 2"});
    }
    job_->Meet(
        {0, 0, 0, group}, group.Position(i * 4 + 1), i, this,
        [&results](absl::Status status) { results.push_back(status); },
        [&met](const std::vector<void*>& all, std::function<void(absl::Status)> finish) {
          met = all.size();
          finish(absl::OkStatus());
        });
  }
  EXPECT_EQ(met, 3u);
  ASSERT_EQ(results.size(), 3u);
  EXPECT_TRUE(results[0].ok());
}

// The first part of the instance may belong to the very process for which the others wait.
TEST_F(JobTest, APartOfThisProcessHearsForWhomItsInstanceWaits) {
  const JobShape shape{2, 2, 2};
  Job job("j", shape);
  std::vector<std::string> told_elsewhere;
  for (uint32_t part : {0, 1}) {
    JobMember member = instances_[0].Member(0, 0, 1);
    member.part = part;
    member.units = {part};
    if (part == 0) {
      member.endpoint = "elsewhere";
      member.notice = [&](const std::string& text) { told_elsewhere.push_back(text); };
    }
    ASSERT_TRUE(job.Join(shape, member).ok());
    job.Loaded(0, part, "c3d4");
  }
  job.StartRun(0, 0, 0, [](const absl::Status&) {});
  job.Tick(Job::Clock::now() + seconds(6), seconds(5), seconds(60));
  EXPECT_EQ(instances_[0].notices, std::vector<std::string>{"waiting for 1 of 2 instances: 1"});
  EXPECT_TRUE(told_elsewhere.empty());
}

TEST_F(JobTest, EmptyWhenAllHaveLeft) {
  JoinAll();
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(job_->Empty());
    job_->Leave(i, 0, false);
  }
  EXPECT_TRUE(job_->Empty());
}

// A transport that takes messages and delivers none.
class SilentTransport : public Transport {
 public:
  void Send(const std::string&, std::string, absl::Span<const std::byte>,
            std::function<void(absl::Status)> sent) override {
    sent(absl::OkStatus());
  }
};

// A job of two instances with a replica each. The coordinator's process hosts the first instance,
// another process the second.
class SpanningJobTest : public JobTest {
 protected:
  SpanningJobTest() {
    JobMember here = instances_[0].Member(0, 0, 1), elsewhere = instances_[1].Member(1, 1, 1);
    elsewhere.endpoint = "elsewhere";
    EXPECT_TRUE(job_->Join(shape_, here).ok());
    EXPECT_TRUE(job_->Join(shape_, elsewhere).ok());
  }
  void Load() {
    for (uint32_t i : {0, 1}) job_->Loaded(i, 0, "c3d4");
  }
  void Form() {
    CollectivesOptions options;
    options.total_replicas = 2;
    options.sites = {{.endpoint = "", .units = {0}}, {.endpoint = "elsewhere", .units = {1}}};
    options.transport = &transport_;
    options.compute = [](const std::function<void()>& task) { task(); };
    options.fail = [this](const absl::Status& cause) { job_->Fail(cause); };
    job_->Formed(std::make_shared<Collectives>(std::move(options)));
    job_->ReadyElsewhere(1, 0, "address");
  }
  // Lets the replica of this process arrive at a barrier of a run, where it waits.
  void Meet(uint64_t run) {
    const RendezvousKey key{run, 0, 0, {0, 1, 2}};
    job_->Meet(
        key, 0, 0, this, [this](const absl::Status& status) { met_ = status; },
        [this, key](const std::vector<void*>&, const std::function<void(absl::Status)>& finish) {
          Collective barrier{.kind = Kind::kAllGather, .replicas = {0}, .arenas = {nullptr}};
          job_->collectives()->Run(
              key, std::move(barrier),
              [finish](const absl::StatusOr<Outcome>& outcome) { finish(outcome.status()); });
        });
  }

  const JobShape shape_{2, 2, 1};
  SilentTransport transport_;
  std::shared_ptr<Job> job_ = std::make_shared<Job>("j", shape_, Job::Role::kCoordinator,
                                                    [](const std::vector<JobPart>&) {});
  std::optional<absl::Status> met_;
  const absl::Status left_ = absl::AbortedError("instance 1 (pid 101 on host) left the job");
};

TEST_F(SpanningJobTest, LeavingEndsARunThatAnInstanceElsewhereHasNotBegun) {
  Load();
  Form();
  Meet(3);
  EXPECT_FALSE(met_.has_value());
  job_->LeaveElsewhere(1, 0, /*lost=*/false, /*runs=*/3);
  EXPECT_EQ(met_, left_);
  EXPECT_EQ(instances_[0].failure, left_);
}

// The last messages of an instance may arrive after the news that it has left.
TEST_F(SpanningJobTest, ARunThatAnInstanceElsewhereHasCompletedIsNotDisturbed) {
  Load();
  Form();
  Meet(3);
  job_->LeaveElsewhere(1, 0, /*lost=*/false, /*runs=*/4);
  job_->Tick(Job::Clock::now() + seconds(60), seconds(5), seconds(60));
  EXPECT_FALSE(met_.has_value());
  EXPECT_FALSE(instances_[0].failure.has_value());
  job_->Fail(absl::CancelledError("the test has ended"));
}

// Records the calls by which a follower tells its coordinator of failures and departures.
class RecordingLink : public CoordinatorLink {
 public:
  void Loaded(const std::string&) override {}
  void Waits() override {}
  void Ready(const std::string&) override {}
  void Alive() override {}
  void Leave(bool, uint64_t) override { told.push_back("leave"); }
  void Fail(const absl::Status& cause, bool, uint32_t) override {
    told.push_back(std::string(cause.message()));
  }
  std::vector<std::string> told;
};

// In the broken run, units on other processes wait for the units of the instance, too.
TEST_F(JobTest, TheCoordinatorHearsOfABrokenRunBeforeTheInstanceLeaves) {
  const auto link = std::make_shared<RecordingLink>();
  const JobShape shape{1, 4, 1};
  job_ = std::make_shared<Job>("j", shape, Job::Role::kFollower, nullptr);
  JobMember member = instances_[0].Member(0, 0, 4);
  member.units = {0, 1, 2, 3};
  member.coordinator = link;
  ASSERT_TRUE(job_->Join(shape, std::move(member)).ok());
  job_->Loaded(0, 0, "c3d4");
  job_->Leave(0, 0, /*lost=*/false, absl::AbortedError("instance 0 left the job during a run"));
  EXPECT_EQ(link->told,
            (std::vector<std::string>{"instance 0 left the job during a run", "leave"}));
}

TEST_F(SpanningJobTest, AnInstanceThatLeavesBeforeTheJobFormsEndsAWaitForIt) {
  Load();
  job_->StartRun(0, 0, 0, [this](const absl::Status& status) { instances_[0].started = status; });
  EXPECT_FALSE(instances_[0].started.has_value());
  job_->LeaveElsewhere(1, 0, /*lost=*/false, /*runs=*/0);
  EXPECT_EQ(instances_[0].started, left_);
}

TEST_F(SpanningJobTest, NobodyWaitsForAnInstanceThatLeftBeforeTheJobFormed) {
  Load();
  job_->LeaveElsewhere(1, 0, /*lost=*/false, /*runs=*/0);
  EXPECT_FALSE(instances_[0].failure.has_value());  // instance 0 may need nobody
  job_->StartRun(0, 0, 0, [this](const absl::Status& status) { instances_[0].started = status; });
  EXPECT_EQ(instances_[0].started, left_);
}

}  // namespace
}  // namespace vpod::fabric
