#include "server/controller/test_cluster.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/device_id.h"
#include "device/base/mutex.h"

namespace vpod::controller {
namespace {

using arch::Link;
using arch::LinkEnd;
using arch::LinkKind;
using vipuadmin::TestClusterReply;

// Agents are asked by so many threads; each call holds one for some milliseconds.
constexpr size_t kParallelCalls = 8;

// A test of a link, asked of the process that holds its near end.
struct Step {
  std::string endpoint;
  vipuagent::TestLinkRequest request;
};

// A link and what it is put through, one after the other, until something fails.
struct Probe {
  Link link;
  std::vector<Step> steps;
  std::string failure;  // empty: it passed
};

// Calls `work` for 0 … count-1 on several threads, until cancelled.
void InParallel(size_t count, const std::function<bool()>& is_cancelled,
                const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto loop = [&] {
    for (size_t i = next++; i < count && !is_cancelled(); i = next++) work(i);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(count, kParallelCalls); ++i) threads.emplace_back(loop);
  loop();
  for (std::thread& thread : threads) thread.join();
}

class Tester {
 public:
  Tester(const ClusterUnderTest& cluster, const AgentCalls& calls)
      : cluster_(cluster), calls_(calls) {}

  void Versions(TestClusterReply& row);
  void Cabling(TestClusterReply& row);
  void Sync(TestClusterReply& row);
  void Training(TestClusterReply& row);
  void Traffic(TestClusterReply& row);
  void GwLinks(TestClusterReply& row);

 private:
  // Every link that `wanted` picks, once, with each test; traffic goes both ways.
  std::vector<Probe> Plan(const std::vector<vipuagent::LinkTest>& tests,
                          const std::function<bool(const Link&)>& wanted) const;
  Step StepOf(vipuagent::LinkTest test, const LinkEnd& near, const LinkEnd& far) const;
  std::string NameOf(const LinkEnd& end) const;
  // Where data sent into a switched port arrive: at the same port of the next ILD.
  LinkEnd BehindSwitch(const LinkEnd& end) const;
  void Run(std::vector<Probe>& probes);
  std::string RunOne(const Probe& probe);
  // Whether the process at `endpoint` has failed to answer before.
  bool IsLost(const std::string& endpoint);
  void Report(const std::vector<Probe>& probes, const char* all_well, const char* none,
              TestClusterReply& row) const;
  std::string Port(const Link& link) const {
    return absl::StrCat(cluster_.machines[link.near.machine].agent_id, " ",
                        arch::PortName(link.near.port));
  }

  const ClusterUnderTest& cluster_;
  const AgentCalls& calls_;
  base::Mutex mutex_;
  std::set<std::string> lost_ ABSL_GUARDED_BY(mutex_);
};

std::string Tester::NameOf(const LinkEnd& end) const {
  if (end.machine == LinkEnd::kSwitch) return absl::StrCat("switch ", end.port);
  return absl::StrCat(cluster_.machines[end.machine].host, " ", arch::PortName(end.port));
}

LinkEnd Tester::BehindSwitch(const LinkEnd& end) const {
  const uint32_t machines = cluster_.shape.machines;
  return {(end.machine + cluster_.shape.machines_per_ild()) % machines, end.port};
}

Step Tester::StepOf(vipuagent::LinkTest test, const LinkEnd& near, const LinkEnd& far) const {
  Step step;
  step.endpoint = cluster_.machines[near.machine].endpoint;
  step.request.set_test(test);
  step.request.set_host(cluster_.machines[near.machine].host);
  step.request.set_link(arch::PortName(near.port));
  step.request.set_expected_peer(NameOf(far));
  if (far.machine != LinkEnd::kSwitch)
    step.request.set_peer_endpoint(cluster_.machines[far.machine].endpoint);
  return step;
}

std::vector<Probe> Tester::Plan(const std::vector<vipuagent::LinkTest>& tests,
                                const std::function<bool(const Link&)>& wanted) const {
  std::vector<Probe> probes;
  for (uint32_t machine = 0; machine < cluster_.shape.machines; ++machine) {
    arch::ForEachPort(cluster_.shape, machine, [&](const Link& link) {
      if (!link.named_from_near() || !wanted(link)) return;
      Probe& probe = probes.emplace_back();
      probe.link = link;
      for (vipuagent::LinkTest test : tests) {
        const bool to_switch = link.far.machine == LinkEnd::kSwitch;
        const bool traffic = test == vipuagent::TRAFFIC;
        probe.steps.push_back(
            StepOf(test, link.near, to_switch && traffic ? BehindSwitch(link.near) : link.far));
        // Behind a switch the way back is another port's.
        if (traffic && !to_switch) probe.steps.push_back(StepOf(test, link.far, link.near));
      }
    });
  }
  return probes;
}

bool Tester::IsLost(const std::string& endpoint) {
  base::MutexLock lock(mutex_);
  return endpoint.empty() || lost_.contains(endpoint);
}

std::string Tester::RunOne(const Probe& probe) {
  for (const auto& [endpoint, request] : probe.steps) {
    if (IsLost(endpoint)) return "the agent does not answer";
    const bool to_switch =
        probe.link.far.machine == LinkEnd::kSwitch && request.peer_endpoint().empty();
    if (!to_switch && IsLost(request.peer_endpoint()))
      return absl::StrCat("no answer from ", request.expected_peer());
    const auto reply = calls_.test_link(endpoint, request);
    if (!reply.ok()) {
      if (!IsSilence(reply.status())) return std::string(reply.status().message());
      base::MutexLock lock(mutex_);
      lost_.insert(endpoint);
      return "the agent does not answer";
    }
    if (!reply->passed()) return reply->reason();
  }
  return "";
}

void Tester::Run(std::vector<Probe>& probes) {
  InParallel(probes.size(), calls_.is_cancelled,
             [&](size_t i) { probes[i].failure = RunOne(probes[i]); });
}

void Tester::Report(const std::vector<Probe>& probes, const char* all_well, const char* none,
                    TestClusterReply& row) const {
  for (const Probe& probe : probes) {
    if (!probe.failure.empty())
      row.add_failures(absl::StrCat(Port(probe.link), ": ", probe.failure));
  }
  row.set_expected(static_cast<uint32_t>(probes.size()));
  row.set_passed(row.expected() - static_cast<uint32_t>(row.failures_size()));
  row.set_summary(probes.empty()           ? absl::StrCat("Skipped: ", none)
                  : row.failures().empty() ? all_well
                                           : absl::StrCat(row.failures_size(), " failed"));
}

void Tester::Versions(TestClusterReply& row) {
  const std::array<const char*, 4> kVersions = {"Virm version", "Runtime version", "GWSW Version",
                                                "IPUoF server version"};
  std::vector<std::string> versions(cluster_.machines.size());  // empty: no answer
  InParallel(versions.size(), calls_.is_cancelled, [&](size_t i) {
    const ClusterUnderTest::Machine& machine = cluster_.machines[i];
    if (IsLost(machine.endpoint)) return;
    const auto reply = calls_.describe(machine.endpoint, machine.host);
    if (!reply.ok()) {
      base::MutexLock lock(mutex_);
      lost_.insert(machine.endpoint);
      return;
    }
    for (const char* name : kVersions) {
      const auto fact = reply->facts().find(name);
      absl::StrAppend(&versions[i], versions[i].empty() ? "" : ", ", name, " ",
                      fact == reply->facts().end() ? "unknown" : fact->second);
    }
  });
  // The versions that most machines have are right.
  std::map<std::string, size_t> count;
  for (const std::string& each : versions) count[each] += !each.empty();
  const auto most = std::max_element(
      count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (size_t i = 0; i < versions.size(); ++i) {
    if (versions[i] == most->first && !versions[i].empty()) continue;
    row.add_failures(absl::StrCat(
        cluster_.machines[i].agent_id, " versions: ",
        versions[i].empty() ? "the agent does not answer"
                            : absl::StrCat(versions[i], "; the others have ", most->first)));
  }
  row.set_expected(static_cast<uint32_t>(versions.size()));
  row.set_passed(row.expected() - static_cast<uint32_t>(row.failures_size()));
  row.set_summary(row.failures().empty() ? "All agents report the same component versions"
                                         : absl::StrCat(row.failures_size(), " failed"));
}

void Tester::Cabling(TestClusterReply& row) {
  auto probes = Plan({vipuagent::CABLING}, [](const Link& link) {
    return link.between_machines() && link.kind != LinkKind::kSyncLink;
  });
  Run(probes);
  Report(probes, "All cables found where expected", "cluster has no cables", row);
}

void Tester::Sync(TestClusterReply& row) {
  auto probes =
      Plan({vipuagent::SYNC}, [](const Link& link) { return link.kind == LinkKind::kSyncLink; });
  Run(probes);
  Report(probes, "All Sync-Links toggled", "cluster has no Sync-Links", row);
}

void Tester::Training(TestClusterReply& row) {
  auto probes =
      Plan({vipuagent::TRAINING}, [](const Link& link) { return link.kind == LinkKind::kIpuLink; });
  Run(probes);
  Report(probes, "All IPU-Links trained", "cluster has no IPU-Links", row);
}

// Links are what fails, IPUs what is counted.
void Tester::Traffic(TestClusterReply& row) {
  auto probes =
      Plan({vipuagent::TRAFFIC}, [](const Link& link) { return link.kind == LinkKind::kIpuLink; });
  Run(probes);
  Report(probes, "No data errors", "cluster has no IPU-Links", row);
  std::set<std::pair<uint32_t, uint32_t>> failed;
  for (const Probe& probe : probes) {
    if (probe.failure.empty()) continue;
    for (const LinkEnd& end : {probe.link.near, probe.link.far})
      failed.insert({end.machine, arch::IpuOfPort(end.port)});
  }
  row.set_expected(cluster_.shape.machines * arch::kIpusPerMachine);
  row.set_passed(row.expected() - static_cast<uint32_t>(failed.size()));
  if (failed.empty()) return;
  row.set_summary(absl::StrCat(failed.size(), " failed, the ends of ", row.failures_size(),
                               row.failures_size() == 1 ? " link" : " links"));
}

void Tester::GwLinks(TestClusterReply& row) {
  auto probes = Plan({vipuagent::TRAINING, vipuagent::TRAFFIC},
                     [](const Link& link) { return link.kind == LinkKind::kGwLink; });
  Run(probes);
  Report(probes, "All GW-Links carry data",
         cluster_.shape.ilds == 1 ? "cluster has one ILD" : "cluster has no GW-Links", row);
}

struct Row {
  const char* flag;
  const char* title;
  void (Tester::*run)(TestClusterReply&);
};
constexpr Row kRows[] = {
    {"versions", "Version", &Tester::Versions}, {"cabling", "Cabling", &Tester::Cabling},
    {"sync", "Sync-Link", &Tester::Sync},       {"links", "Link-Training", &Tester::Training},
    {"traffic", "Traffic", &Tester::Traffic},   {"gw-links", "GW-Link", &Tester::GwLinks},
};

}  // namespace

bool IsSilence(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::Status TestCluster(const ClusterUnderTest& cluster, const AgentCalls& calls,
                         const std::vector<std::string>& tests,
                         const std::function<bool(const TestClusterReply&)>& row) {
  const std::set<std::string> wanted(tests.begin(), tests.end());
  for (const std::string& name : wanted) {
    if (std::none_of(std::begin(kRows), std::end(kRows),
                     [&](const Row& each) { return name == each.flag; })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Unknown test '", name, "'. There are ",
          absl::StrJoin(kRows, ", ",
                        [](std::string* out, const Row& each) { absl::StrAppend(out, each.flag); }),
          "."));
    }
  }
  Tester tester(cluster, calls);
  for (const Row& each : kRows) {
    TestClusterReply result;
    result.set_test(each.title);
    const auto begin = std::chrono::steady_clock::now();
    if (wanted.empty() || wanted.contains(each.flag)) {
      (tester.*each.run)(result);
    } else {
      result.set_summary("Skipped: not selected");
    }
    result.set_seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (calls.is_cancelled() || !row(result))
      return absl::CancelledError("nobody waits for the rest");
  }
  return absl::OkStatus();
}

}  // namespace vpod::controller
