// `test cluster` against real agents in this process: every fault is found and named, and nothing
// else is.
#include "server/controller/test_cluster.h"

#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/fabric/memory_transport.h"
#include "server/agent/agent.h"

namespace vpod::controller {
namespace {

using vipuagent::Fault;

// The machines of a cluster on `processes` agents, which are asked by calling them and send each
// other data through queues.
class Pod {
 public:
  Pod(const arch::ClusterShape& shape, uint32_t processes) {
    cluster_.shape = shape;
    const uint32_t machines_each = shape.machines / processes;
    for (uint32_t p = 0; p < processes; ++p) {
      agent::AgentOptions options;
      options.num_machines = machines_each;
      options.compute_threads = 1;
      options.management_prefix = absl::StrCat("127.", 10 + 2 * p);
      const std::string endpoint = absl::StrCat("process ", p);
      agents_[endpoint] = *agent::Agent::Create(options);
      agents_[endpoint]->ask_far_end = [this](const std::string& to,
                                              const vipuagent::AnswerLinkRequest& request)
          -> absl::StatusOr<vipuagent::AnswerLinkReply> {
        if (silent_.contains(to)) return absl::DeadlineExceededError("silence");
        return agents_.at(to)->AnswerLink(request);
      };
      auto transport = std::make_unique<fabric::MemoryTransport>(p);
      transports_[endpoint] = transport.get();
      agents_[endpoint]->SetPeers(nullptr, std::move(transport));
      for (uint32_t m = 0; m < machines_each; ++m) {
        cluster_.machines.push_back({absl::StrCat("ag", cluster_.machines.size()),
                                     absl::StrCat("127.", 10 + 2 * p, ".0.", m + 1), endpoint});
      }
    }
    for (const auto& [endpoint, transport] : transports_) {
      transport->Connect(transports_,
                         [agent = agents_[endpoint].get()](absl::string_view header, size_t bytes) {
                           return agent->OnFabricMessage(header, bytes);
                         });
    }
    calls_.describe =
        [this](const std::string& endpoint,
               const std::string& host) -> absl::StatusOr<vipuagent::DescribeMachineReply> {
      ++asked_;
      if (silent_.contains(endpoint)) return absl::DeadlineExceededError("silence");
      auto reply = agents_.at(endpoint)->DescribeMachine(host);
      if (host == outdated_) (*reply->mutable_facts())["GWSW Version"] = "2.5.0";
      return reply;
    };
    calls_.test_link =
        [this](
            const std::string& endpoint,
            const vipuagent::TestLinkRequest& request) -> absl::StatusOr<vipuagent::TestLinkReply> {
      ++asked_;
      if (silent_.contains(endpoint)) return absl::DeadlineExceededError("silence");
      return agents_.at(endpoint)->TestLink(request);
    };
    calls_.is_cancelled = [this] { return asked_ >= patience_; };
  }

  // No message comes any more when the agents go.
  ~Pod() {
    for (const auto& [endpoint, transport] : transports_) transport->Stop();
  }

  const arch::ClusterShape& shape() const { return cluster_.shape; }
  void SetSilent(const std::string& endpoint) { silent_.insert(endpoint); }
  void SetOutdated(const std::string& host) { outdated_ = host; }
  // Nobody waits any more after so many questions.
  void CancelAfter(int questions) { patience_ = questions; }
  int asked() const { return asked_; }
  fabric::MemoryTransport& transport(const std::string& endpoint) {
    return *transports_.at(endpoint);
  }
  void LoseMachine(uint32_t machine) { cluster_.machines[machine].endpoint.clear(); }

  void Inject(const arch::LinkEnd& end, Fault fault) {
    const ClusterUnderTest::Machine& machine = cluster_.machines[end.machine];
    vipuagent::InjectRequest request;
    request.set_host(machine.host);
    request.set_link(arch::PortName(end.port));
    request.set_fault(fault);
    request.set_rate(5);
    const absl::Status status = agents_.at(machine.endpoint)->Inject(request);
    EXPECT_TRUE(status.ok()) << status;
  }

  std::vector<vipuadmin::TestClusterReply> Test(const std::vector<std::string>& tests = {}) {
    std::vector<vipuadmin::TestClusterReply> rows;
    const absl::Status status = TestCluster(cluster_, calls_, tests, [&](const auto& row) {
      rows.push_back(row);
      return true;
    });
    EXPECT_EQ(status.code(),
              asked_ < patience_ ? absl::StatusCode::kOk : absl::StatusCode::kCancelled);
    return rows;
  }
  // "ag3 IPU3.NLC_E_0A" of every failure, and the tests that found it.
  std::map<std::string, std::set<std::string>> Failures() {
    std::map<std::string, std::set<std::string>> failures;
    for (const auto& row : Test()) {
      EXPECT_EQ(row.passed() == row.expected(), row.failures().empty()) << row.test();
      for (const std::string& failure : row.failures())
        failures[std::string(absl::string_view(failure).substr(0, failure.find(':')))].insert(
            row.test());
    }
    return failures;
  }
  std::string NameOf(const arch::LinkEnd& end) const {
    return absl::StrCat(cluster_.machines[end.machine].agent_id, " ", arch::PortName(end.port));
  }

 private:
  ClusterUnderTest cluster_;
  AgentCalls calls_;
  std::map<std::string, std::unique_ptr<agent::Agent>> agents_;
  std::map<std::string, fabric::MemoryTransport*> transports_;  // the agents'
  std::set<std::string> silent_;
  std::string outdated_;
  std::atomic<int> asked_ = 0;
  int patience_ = INT_MAX;
};

arch::ClusterShape Shape(uint32_t machines, uint32_t ilds, const std::string& topology,
                         const std::string& cluster_topology) {
  return *arch::MakeShape(machines, ilds, topology, cluster_topology);
}

std::vector<arch::Link> LinksOf(const arch::ClusterShape& shape) {
  std::vector<arch::Link> links;
  for (uint32_t machine = 0; machine < shape.machines; ++machine) {
    arch::ForEachPort(shape, machine, [&](const arch::Link& link) {
      if (link.named_from_near()) links.push_back(link);
    });
  }
  return links;
}

std::string RowText(const vipuadmin::TestClusterReply& row) {
  return absl::StrCat(row.test(), " ", row.passed(), "/", row.expected(), " ", row.summary());
}

TEST(TestClusterTest, AllIsWellInAPod16) {
  Pod pod(Shape(4, 1, "mesh", "none"), 2);
  std::vector<std::string> rows;
  for (const auto& row : pod.Test()) rows.push_back(RowText(row));
  EXPECT_EQ(rows,
            (std::vector<std::string>{
                "Version 4/4 All agents report the same component versions",
                "Cabling 12/12 All cables found where expected",
                "Sync-Link 6/6 All Sync-Links toggled", "Link-Training 76/76 All IPU-Links trained",
                "Traffic 16/16 No data errors", "GW-Link 0/0 Skipped: cluster has one ILD"}));
}

TEST(TestClusterTest, AllIsWellInLoopedAndSwitchedRacks) {
  for (const char* topology : {"looped", "switched"}) {
    Pod pod(Shape(8, 4, "torus", topology), 4);
    EXPECT_TRUE(pod.Failures().empty());
    EXPECT_EQ(RowText(pod.Test({"gw-links"}).back()),
              absl::StrCat("GW-Link ", topology == std::string("looped") ? "8/8" : "16/16",
                           " All GW-Links carry data"));
  }
}

// Must be found: each link of a POD64 in turn, cut at one end or the other.
TEST(TestClusterTest, EveryLinkOfAPod64ThatIsDownIsNamed) {
  Pod pod(Shape(16, 1, "torus", "none"), 4);
  const auto links = LinksOf(pod.shape());
  ASSERT_EQ(links.size(), 320u + 32);
  bool far_end = false;
  for (const arch::Link& link : links) {
    const arch::LinkEnd end = far_end ? link.far : link.near;
    pod.Inject(end, vipuagent::LINK_DOWN);
    const auto failures = pod.Failures();
    ASSERT_EQ(failures.size(), 1u) << pod.NameOf(end);
    EXPECT_EQ(failures.begin()->first, pod.NameOf(link.near));
    const std::set<std::string> tests =
        link.kind == arch::LinkKind::kSyncLink ? std::set<std::string>{"Sync-Link"}
        : link.between_machines() ? std::set<std::string>{"Cabling", "Link-Training", "Traffic"}
                                  : std::set<std::string>{"Link-Training", "Traffic"};
    EXPECT_EQ(failures.begin()->second, tests);
    pod.Inject(end, vipuagent::FAULT_NONE);
    far_end = !far_end;
  }
  EXPECT_TRUE(pod.Failures().empty());
}

// Must be found as well: links that carry data but change them.
TEST(TestClusterTest, EveryLinkThatCorruptsIsNamed) {
  Pod pod(Shape(4, 1, "torus", "none"), 2);
  bool far_end = false;
  for (const arch::Link& link : LinksOf(pod.shape())) {
    const arch::LinkEnd end = far_end ? link.far : link.near;
    pod.Inject(end, vipuagent::LINK_CORRUPTS);
    const auto failures = pod.Failures();
    ASSERT_EQ(failures.size(), 1u) << pod.NameOf(end);
    EXPECT_EQ(failures.begin()->first, pod.NameOf(link.near));
    EXPECT_EQ(failures.begin()->second, link.kind == arch::LinkKind::kSyncLink
                                            ? std::set<std::string>{"Sync-Link"}
                                            : (std::set<std::string>{"Link-Training", "Traffic"}));
    pod.Inject(end, vipuagent::FAULT_NONE);
    far_end = !far_end;
  }
  EXPECT_TRUE(pod.Failures().empty());
}

// No fault is known to any agent: only the data tell.
TEST(TestClusterTest, DataThatChangeOrVanishBetweenAgentsAreNoticed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the library that counts the holders of an error is not instrumented";
#endif
  Pod pod(Shape(2, 1, "mesh", "none"), 2);
  const std::vector<std::byte> other(4 << 10, std::byte{0x55});
  std::atomic<size_t> messages = 0;  // links are tested side by side
  pod.transport("process 1").set_tamper([&](fabric::MemoryTransport::Message& message) {
    const size_t number = message.payload.size() == other.size() ? ++messages : 0;
    if (number == 1) message.payload = other;
    if (number == 3) message.fate = absl::UnavailableError("the cable is cut");
  });
  const auto row = pod.Test({"traffic"})[4];
  ASSERT_EQ(row.failures_size(), 2) << row.DebugString();
  std::set<std::string> reasons;
  for (const std::string& failure : row.failures()) {
    reasons.insert(std::string(absl::string_view(failure).substr(failure.find(": data") + 2, 22)));
  }
  EXPECT_EQ(reasons, (std::set<std::string>{"data arrived changed a", "data sent to 127.10.0."}));
}

TEST(TestClusterTest, EverySwappedCableAndEveryBadGwLinkIsNamed) {
  for (const char* topology : {"looped", "switched", "mesh"}) {
    Pod pod(Shape(6, 3, "torus", topology), 3);
    for (const arch::Link& link : LinksOf(pod.shape())) {
      if (!link.between_machines()) continue;
      for (const Fault fault : {vipuagent::CABLE_SWAPPED, vipuagent::LINK_DOWN,
                                vipuagent::LINK_CORRUPTS, vipuagent::LINK_ERRORS}) {
        pod.Inject(link.near, fault);
        auto failures = pod.Failures();
        // In a switched cluster data pass two ports: the next rack's sees the fault as well.
        if (link.far.machine == arch::LinkEnd::kSwitch && failures.size() == 2) {
          EXPECT_EQ(failures.count(pod.NameOf(link.near)), 1u);
          for (const auto& [name, tests] : failures) {
            if (name != pod.NameOf(link.near)) {
              EXPECT_EQ(tests, std::set<std::string>{"GW-Link"});
            }
          }
        } else {
          ASSERT_EQ(failures.size(), 1u) << pod.NameOf(link.near) << " " << fault;
          EXPECT_EQ(failures.begin()->first, pod.NameOf(link.near));
        }
        pod.Inject(link.near, vipuagent::FAULT_NONE);
      }
    }
  }
}

TEST(TestClusterTest, FailuresSayWhatIsWrong) {
  Pod pod(Shape(4, 1, "torus", "none"), 4);
  pod.Inject({1, *arch::FindPort("IPU1.NLC_W_0A")}, vipuagent::CABLE_SWAPPED);
  pod.SetOutdated("127.14.0.1");
  const auto rows = pod.Test();
  EXPECT_EQ(RowText(rows[0]), "Version 3/4 1 failed");
  EXPECT_EQ(rows[0].failures(0),
            "ag2 versions: Virm version 1.18.0, Runtime version 1.3.0, GWSW Version 2.5.0, IPUoF "
            "server version v1.11.0; the others have Virm version 1.18.0, Runtime version 1.3.0, "
            "GWSW Version 2.6.0, IPUoF server version v1.11.0");
  EXPECT_EQ(RowText(rows[1]), "Cabling 15/16 1 failed");
  EXPECT_EQ(rows[1].failures(0),
            "ag1 IPU1.NLC_W_0A: leads to 127.14.0.1 IPU3.NLC_W_1B instead of 127.14.0.1 "
            "IPU3.NLC_W_1A");
  EXPECT_EQ(RowText(rows[4]), "Traffic 14/16 2 failed, the ends of 1 link");
}

TEST(TestClusterTest, AgentsThatDoNotAnswerAreNamed) {
  Pod pod(Shape(4, 1, "mesh", "none"), 4);
  pod.SetSilent("process 2");
  pod.LoseMachine(3);
  const auto rows = pod.Test();
  EXPECT_EQ(RowText(rows[0]), "Version 2/4 2 failed");
  EXPECT_EQ(rows[0].failures(0), "ag2 versions: the agent does not answer");
  EXPECT_EQ(rows[0].failures(1), "ag3 versions: the agent does not answer");
  EXPECT_EQ(RowText(rows[1]), "Cabling 4/12 8 failed");
  EXPECT_EQ(rows[1].failures(0), "ag1 IPU0.NLC_E_0A: no answer from 127.14.0.1 IPU2.NLC_E_1A");
  EXPECT_EQ(RowText(rows[4]), "Traffic 6/16 10 failed, the ends of 40 links");
}

TEST(TestClusterTest, OnlyTheChosenTestsRun) {
  Pod pod(Shape(4, 1, "mesh", "none"), 1);
  const auto rows = pod.Test({"sync"});
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(RowText(rows[1]), "Cabling 0/0 Skipped: not selected");
  EXPECT_EQ(RowText(rows[2]), "Sync-Link 6/6 All Sync-Links toggled");
  EXPECT_EQ(TestCluster({}, {}, {"cables"}, [](const auto&) { return true; }).message(),
            "Unknown test 'cables'. There are versions, cabling, sync, links, traffic, gw-links.");
}

TEST(TestClusterTest, CancellationEndsATestBetweenQuestions) {
  Pod pod(Shape(4, 1, "mesh", "none"), 1);
  pod.CancelAfter(3);
  EXPECT_EQ(pod.Test({"traffic"}).size(), 4u);  // those before it, which are skipped
  EXPECT_LT(pod.asked(), 3 + 8);                // those under way are waited for
  Pod patient(Shape(4, 1, "mesh", "none"), 1);
  EXPECT_EQ(patient.Test({"traffic"}).size(), 6u);
  EXPECT_GT(patient.asked(), 3 + 8);
}

}  // namespace
}  // namespace vpod::controller
