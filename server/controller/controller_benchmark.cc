// The controller at the size of a POD65536, on a disk: 16,384 machines registered by one process,
// 1,024 ILDs. Figures beside that of a bare SQLite commit on the same disk.
//
//   bazel run -c opt //server/controller:controller_benchmark
#include <benchmark/benchmark.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;

constexpr int kMachines = 16384;

// Confirms everything at once.
class ReadyAgents : public AgentGateway {
 public:
  void Configure(const std::string&, const vipuagent::ConfigureRequest&,
                 std::function<void(absl::Status)> done) override {
    waiting_.push_back(std::move(done));
  }
  absl::StatusOr<vipuagent::DescribeMachineReply> DescribeMachine(const std::string&,
                                                                  const std::string&) override {
    return absl::UnavailableError("not asked for");
  }
  absl::StatusOr<vipuagent::TestLinkReply> TestLink(const std::string&,
                                                    const vipuagent::TestLinkRequest&) override {
    vipuagent::TestLinkReply reply;
    reply.set_passed(true);
    return reply;
  }
  absl::Status Inject(const std::string&, const vipuagent::InjectRequest&) override {
    return absl::OkStatus();
  }
  void Forget(const std::string&) override {}
  absl::Status ResetMachine(const std::string&, const std::string&) override {
    return absl::OkStatus();
  }
  void Answer() {
    while (!waiting_.empty()) {
      const auto done = std::move(waiting_.back());
      waiting_.pop_back();
      done(absl::OkStatus());
    }
  }

 private:
  std::vector<std::function<void(absl::Status)>> waiting_;
};

class BigPod {
 public:
  BigPod() {
    std::string name = (fs::temp_directory_path() / "vpod-benchmark-XXXXXX").string();
    directory_ = mkdtemp(name.data());
    Open();
    Register();
    Check(controller_->DiscoverAgents(true, "").status());
    vipuadmin::Cluster cluster;
    cluster.set_id("c65536");
    for (int machine = 0; machine < kMachines; ++machine)
      cluster.add_agent_ids(absl::StrCat("ag", machine));
    cluster.set_num_ipulinkdomains(kMachines / 16);
    cluster.set_topology("torus");
    cluster.set_cluster_topology("switched");
    Check(controller_->CreateCluster(cluster, ""));
    agents_.Answer();
  }
  ~BigPod() {
    controller_.reset();
    store_.reset();
    fs::remove_all(directory_);
  }

  static void Check(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "controller_benchmark: error: %s\n", status.ToString().c_str());
    std::exit(1);
  }
  void Open() {
    controller_.reset();
    store_.reset();
    auto store = Store::Open((directory_ / "store.db").string(), Store::OpenMode::kOpenOrCreate);
    Check(store.status());
    store_ = *std::move(store);
    auto controller = Controller::Create(store_.get(), &agents_, {});
    Check(controller.status());
    controller_ = *std::move(controller);
  }
  void Register() {
    vipuagent::RegisterRequest request;
    request.set_endpoint("127.0.0.1:1");
    request.set_boot_id("boot");
    request.set_version(kVersion);
    for (int machine = 1; machine <= kMachines; ++machine) {
      vipuagent::Machine* description = request.add_machines();
      description->set_host(absl::StrCat("127.10.", machine / 256, ".", machine % 256));
      description->set_port(8080);
      description->set_data_ip(absl::StrCat("127.11.", machine / 256, ".", machine % 256));
    }
    Check(controller_->Register(request));
  }
  absl::Status Create(const std::string& id, uint32_t size) {
    vipuuser::CreatePartitionRequest request;
    request.mutable_requirements()->set_id(id);
    request.mutable_requirements()->set_size(size);
    const absl::Status status = controller_->CreatePartition(request, kCaller).status();
    agents_.Answer();
    return status;
  }
  void Remove(const std::string& id) {
    Check(controller_->RemovePartition(id, ""));
    agents_.Answer();
  }
  // Fills the POD to nine tenths with partitions of 1 to 16 IPUs.
  void Fill() {
    uint32_t used = 0;
    for (int number = 0; used < kMachines * 4 / 10 * 9; ++number) {
      const uint32_t size = 1u << (static_cast<uint32_t>(number) * 7919 % 5);
      if (Create(absl::StrCat("fill", number), size).ok()) used += size;
    }
  }

  const Caller kCaller = {.user_id = "alice", .admin = true, .allocation_ids = std::nullopt};
  fs::path directory_;
  ReadyAgents agents_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Controller> controller_;
};

void BareCommit(benchmark::State& state) {
  std::string name = (fs::temp_directory_path() / "vpod-benchmark-XXXXXX").string();
  const fs::path directory = mkdtemp(name.data());
  {
    auto store = Store::Open((directory / "store.db").string(), Store::OpenMode::kOpenOrCreate);
    BigPod::Check(store.status());
    for (auto _ : state) BigPod::Check((*store)->Put("partition", "p", "data"));
  }
  fs::remove_all(directory);
}
BENCHMARK(BareCommit)->Unit(benchmark::kMillisecond)->UseRealTime();

// Create and remove: two commits.
void CreateAndRemove(benchmark::State& state, bool full) {
  BigPod pod;
  if (full) pod.Fill();
  for (auto _ : state) {
    BigPod::Check(pod.Create("p", 8));
    pod.Remove("p");
  }
}
BENCHMARK_CAPTURE(CreateAndRemove, Empty, false)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(CreateAndRemove, NineTenthsFull, true)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void With10000Partitions(benchmark::State& state, void (*work)(BigPod&)) {
  BigPod pod;
  for (int number = 0; number < 10000; ++number)
    BigPod::Check(pod.Create(absl::StrCat("p", number), 4));
  for (auto _ : state) work(pod);
}
BENCHMARK_CAPTURE(With10000Partitions, List, [](BigPod& pod) {
  vipuuser::ListPartitionsReply reply;
  for (auto& partition : pod.controller_->ListPartitions())
    *reply.add_partitions() = std::move(partition);
  benchmark::DoNotOptimize(reply.SerializeAsString());
})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(With10000Partitions, Restart, [](BigPod& pod) {
  pod.Open();
  pod.Register();
  pod.agents_.Answer();
})->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(With10000Partitions, Heartbeat, [](BigPod& pod) {
  vipuagent::HeartbeatRequest request;
  request.set_endpoint("127.0.0.1:1");
  request.set_boot_id("boot");
  static std::string names;
  request.set_names_version(names);
  names = pod.controller_->Heartbeat(request).names_version();
})->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(With10000Partitions, Tick, [](BigPod& pod) {
  pod.controller_->Tick();
})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace vpod::controller

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::off);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
