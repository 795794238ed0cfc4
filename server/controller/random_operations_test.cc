// Random commands of eight clients, with agents that die, hang, fail and return, and with a
// controller that is restarted and killed in between; after every step the controller shows what
// the model of the rules says.
//
//   random_operations_test [--seed=N] [--steps=N] [--log]
//
// The same seed does the same again; --log shows the controller's events.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/controller/controller.h"
#include "server/controller/random_model.h"
#include "server/controller/random_world.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;

uint64_t g_seed = 1;
uint64_t g_steps = 3000;

constexpr int kHosts = 24, kProcesses = 6, kClients = 8;

class Operations {
 public:
  explicit Operations(uint64_t seed) : random_(seed), world_(random_) {
    // Commits are what takes time; on a disk in memory they take none.
    const fs::path base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir();
    directory_ = base / absl::StrCat("vpod-random-", getpid());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    for (int host = 0; host < kHosts; ++host)
      world_.processes[Process(host % kProcesses)].hosts.insert(Host(host));
    for (int process = 0; process < kProcesses; ++process) world_.Boot(Process(process));
    Start();
    Settle();
  }
  ~Operations() {
    controller_.reset();
    store_.reset();
    fs::remove_all(directory_);
  }

  void Step() {
    what_.clear();
    const uint64_t dice = Pick(100);
    if (dice < 60) {
      PartitionCommand();
    } else if (dice < 80) {
      AdminCommand();
    } else {
      Happening();
    }
    Settle();
    Compare();
  }
  const std::string& what() const { return what_; }

 private:
  static std::string Host(int number) { return absl::StrCat("10.1.2.", number + 1); }
  static std::string Process(int number) { return absl::StrCat("process-", number); }
  uint64_t Pick(uint64_t count) { return random_() % count; }
  bool OneIn(uint64_t count) { return Pick(count) == 0; }
  template <class Map>
  std::string KeyOf(const Map& map, const std::string& otherwise) {
    if (map.empty() || OneIn(20)) return otherwise;
    return std::next(map.begin(), static_cast<int64_t>(Pick(map.size())))->first;
  }
  std::string RandomHost() { return Host(static_cast<int>(Pick(kHosts))); }
  std::string RandomAgent() { return KeyOf(model_.agents, "nobody"); }
  std::string User() { return absl::StrCat("client", Pick(kClients)); }

  // --- The controller ---

  std::string Database() const {
    return (directory_ / absl::StrCat("store-", starts_, ".db")).string();
  }

  void Start() {
    auto store = Store::Open(Database(), Store::OpenMode::kOpenOrCreate);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ControllerOptions options;
    options.now = [this] { return Clock::time_point(std::chrono::milliseconds(model_.now)); };
    // The model's time passes in jumps.
    options.longest_pause = std::chrono::hours(1);
    options.tick_interval = std::chrono::hours(1);
    auto controller = Controller::Create(store_.get(), &world_, options);
    ASSERT_TRUE(controller.ok()) << controller.status();
    controller_ = *std::move(controller);
    model_.Restarted();
  }
  void Restart() {
    world_.DropCalls();
    controller_.reset();
    store_.reset();
    Start();
  }
  // Restarts from the files of a killed process, as they are, never closed.
  void Kill() {
    const std::string before = Database();
    ++starts_;
    for (const char* suffix : {"", "-wal"}) {
      if (fs::exists(before + suffix)) fs::copy_file(before + suffix, Database() + suffix);
    }
    Restart();
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(before + suffix);
  }

  void Settle() {
    for (int round = 0; round < 4; ++round) {
      for (const auto& [endpoint, process] : world_.processes) {
        if (!process.alive) continue;
        if (controller_->Heartbeat(world_.Heartbeat(endpoint)).register_()) {
          EXPECT_TRUE(controller_->Register(world_.Registration(endpoint)).ok());
          controller_->Heartbeat(world_.Heartbeat(endpoint));
        }
      }
      model_.Heartbeats(world_.processes);
      controller_->Tick();
      model_.Tick(world_.processes);
      // Lost replies are noticed, and sent again, by the next ticks.
      for (int again = 0; again < 4; ++again) {
        world_.AnswerAll();
        controller_->Tick();
      }
      world_.AnswerAll();
      model_.Told(world_.processes);
    }
  }

  // --- Commands ---

  void Expect(absl::StatusCode expected, const absl::Status& status, const std::string& what) {
    what_ =
        absl::StrCat(what, " -> ", absl::StatusCodeToString(status.code()), " ", status.message());
    EXPECT_EQ(absl::StatusCodeToString(status.code()), absl::StatusCodeToString(expected)) << what_;
  }

  Model::Wanted RandomWanted() {
    Model::Wanted wanted;
    wanted.id = absl::StrCat("p", Pick(24));
    wanted.size = OneIn(20) ? static_cast<uint32_t>(Pick(70)) : 1u << Pick(7);
    if (OneIn(3)) wanted.gcds = 1u << Pick(4);
    if (OneIn(30)) wanted.gcds = 3;
    if (OneIn(2))
      wanted.allocation =
          OneIn(2) ? KeyOf(model_.clusters, "none") : KeyOf(model_.allocations, "none");
    if (OneIn(5)) wanted.cluster = KeyOf(model_.clusters, "none");
    if (OneIn(8)) wanted.routing = "ringswnc";
    if (OneIn(3)) wanted.reconfigurable = OneIn(2);
    if (OneIn(6)) wanted.index = static_cast<uint32_t>(Pick(8));
    if (OneIn(2)) wanted.relocatable = OneIn(2);
    if (OneIn(3)) wanted.no_auto_reset = OneIn(2);
    return wanted;
  }

  static vipuuser::PartitionRequirements Requirements(const Model::Wanted& wanted) {
    vipuuser::PartitionRequirements r;
    r.set_id(wanted.id);
    r.set_size(wanted.size);
    r.set_num_gcds(wanted.gcds);
    r.set_allocation_id(wanted.allocation);
    r.set_cluster_id(wanted.cluster);
    r.set_ipu_link_routing(wanted.routing);
    if (wanted.reconfigurable.has_value()) r.set_reconfigurable(*wanted.reconfigurable);
    if (wanted.index.has_value()) r.mutable_index()->set_index(*wanted.index);
    return r;
  }

  void PartitionCommand() {
    const Caller caller = {.user_id = User(), .admin = true, .allocation_ids = std::nullopt};
    const uint64_t dice = Pick(10);
    if (dice < 5) {
      Model::Wanted wanted = RandomWanted();
      if (OneIn(2)) wanted.request_id = absl::StrCat("request-", Pick(30));
      vipuuser::CreatePartitionRequest request;
      *request.mutable_requirements() = Requirements(wanted);
      request.set_request_id(wanted.request_id);
      request.set_relocatable(wanted.relocatable.value_or(false));
      request.set_disable_auto_reset(wanted.no_auto_reset.value_or(false));
      const Model::Code expected = model_.CreatePartition(wanted);
      Expect(expected, controller_->CreatePartition(request, caller).status(),
             absl::StrCat("create ", request.ShortDebugString()));
    } else if (dice < 6) {
      Model::Wanted wanted = RandomWanted();
      wanted.id = KeyOf(model_.partitions, "nothing");
      if (OneIn(4)) wanted.size = 0;
      vipuuser::UpdatePartitionRequest request;
      *request.mutable_requirements() = Requirements(wanted);
      if (wanted.relocatable.has_value()) request.set_relocatable(*wanted.relocatable);
      if (wanted.no_auto_reset.has_value()) request.set_disable_auto_reset(*wanted.no_auto_reset);
      const Model::Code expected = model_.UpdatePartition(wanted);
      Expect(expected, controller_->UpdatePartition(request, caller),
             absl::StrCat("update ", request.ShortDebugString()));
    } else if (dice < 7) {
      const std::string id = KeyOf(model_.partitions, "nothing");
      const Model::Code expected = model_.ResetPartition(id);
      Expect(expected, controller_->ResetPartition(id, caller.user_id), "reset " + id);
    } else {
      const std::string id = KeyOf(model_.partitions, "nothing");
      const Model::Code expected = model_.RemovePartition(id);
      Expect(expected, controller_->RemovePartition(id, caller.user_id), "remove " + id);
    }
  }

  std::vector<std::string> RandomAgents() {
    std::vector<std::string> all;
    for (const auto& [id, host] : model_.agents) all.push_back(id);
    if (!OneIn(4)) std::shuffle(all.begin(), all.end(), random_);
    all.resize(std::min(all.size(), size_t{1} << Pick(5)));
    if (OneIn(20)) all.push_back("nobody");
    return all;
  }
  // Members of a cluster that are usually in no other allocation.
  std::set<std::string> RandomMembers(const std::string& cluster) {
    std::set<std::string> result;
    if (!model_.clusters.contains(cluster)) return {"nobody"};
    for (const std::string& agent : model_.clusters[cluster].agents) {
      if (OneIn(3) && (OneIn(10) || model_.AgentsOfAllocation(cluster).contains(agent)))
        result.insert(agent);
    }
    return result;
  }

  void AdminCommand() {
    switch (Pick(11)) {
      case 0:
      case 1: {
        vipuadmin::CreateAgentRequest request;
        request.set_id(absl::StrCat("a", Pick(20)));
        request.set_host(RandomHost());
        request.set_port(8080);
        Expect(model_.CreateAgent(request.id(), request.host()),
               controller_->CreateAgent(request, User()), request.ShortDebugString());
        break;
      }
      case 2: {
        vipuadmin::UpdateAgentRequest request;
        request.set_id(RandomAgent());
        request.set_host(RandomHost());
        Expect(model_.UpdateAgent(request.id(), request.host()),
               controller_->UpdateAgent(request, User()),
               "update agent " + request.ShortDebugString());
        break;
      }
      case 3: {
        const std::string id = RandomAgent();
        Expect(model_.RemoveAgent(id), controller_->RemoveAgent(id, User()), "remove agent " + id);
        break;
      }
      case 4: {
        if (!OneIn(3)) return;
        const auto found = controller_->DiscoverAgents(true, User());
        ASSERT_TRUE(found.ok()) << found.status();
        std::map<std::string, std::string> ids;
        for (const auto& agent : *found) {
          EXPECT_TRUE(agent.added());
          ids[agent.host()] = agent.agent_id();
        }
        for (const auto& [id, host] : model_.agents) {
          if (ids.contains(host)) {
            EXPECT_EQ(ids[host], id);
          }
          ids.erase(host);
        }
        model_.DiscoverAgents(ids);
        what_ = "discover agents";
        break;
      }
      case 5:
      case 6: {
        Model::Cluster wanted;
        wanted.agents = RandomAgents();
        if (OneIn(2)) std::erase_if(wanted.agents, [&](const auto& id) { return InCluster(id); });
        wanted.ilds = OneIn(2) ? 1 : 1u << Pick(3);
        wanted.torus = OneIn(2);
        wanted.gateways = wanted.ilds > 1 && !OneIn(4);
        vipuadmin::Cluster cluster;
        cluster.set_id(OneIn(20) ? KeyOf(model_.allocations, "c0") : absl::StrCat("c", Pick(4)));
        for (const std::string& agent : wanted.agents) cluster.add_agent_ids(agent);
        cluster.set_num_ipulinkdomains(wanted.ilds);
        cluster.set_topology(wanted.torus ? "torus" : "mesh");
        cluster.set_cluster_topology(wanted.gateways ? "looped" : "none");
        Expect(model_.CreateCluster(cluster.id(), wanted),
               controller_->CreateCluster(cluster, User()),
               "create cluster " + cluster.ShortDebugString());
        break;
      }
      case 7: {
        const std::string id = KeyOf(model_.clusters, "nothing");
        std::vector<std::string> agents = RandomAgents();
        if (model_.clusters.contains(id) && !OneIn(4)) {
          agents = model_.clusters[id].agents;  // a small change
          if (OneIn(2) && agents.size() > 1) agents.pop_back();
          if (OneIn(2)) agents.push_back(RandomAgent());
        }
        vipuadmin::UpdateClusterRequest request;
        request.set_id(id);
        for (const std::string& agent : agents) request.add_agent_ids(agent);
        Expect(model_.UpdateCluster(id, agents), controller_->UpdateCluster(request, User()),
               "update cluster " + request.ShortDebugString());
        break;
      }
      case 8: {
        const std::string id = KeyOf(model_.clusters, "nothing");
        if (!OneIn(3)) return;
        Expect(model_.RemoveCluster(id), controller_->RemoveCluster(id, User()),
               "remove cluster " + id);
        break;
      }
      case 9: {
        const std::string cluster = KeyOf(model_.clusters, "nothing");
        const std::string id = OneIn(20) ? cluster : absl::StrCat("x", Pick(5));
        const std::set<std::string> members = RandomMembers(cluster);
        if (OneIn(2)) {
          vipuadmin::Allocation allocation;
          allocation.set_id(id);
          allocation.set_cluster_id(cluster);
          for (const std::string& agent : members) allocation.add_agent_ids(agent);
          Expect(model_.CreateAllocation(id, {cluster, members}),
                 controller_->CreateAllocation(allocation, User()),
                 "create allocation " + allocation.ShortDebugString());
        } else {
          vipuadmin::UpdateAllocationRequest request;
          request.set_id(id);
          request.mutable_agent_ids();
          for (const std::string& agent : members) request.mutable_agent_ids()->add_names(agent);
          Expect(model_.UpdateAllocation(id, members),
                 controller_->UpdateAllocation(request, User()),
                 "update allocation " + request.ShortDebugString());
        }
        break;
      }
      default: {
        const std::string id = KeyOf(model_.allocations, KeyOf(model_.clusters, "nothing"));
        Expect(model_.RemoveAllocation(id), controller_->RemoveAllocation(id, User()),
               "remove allocation " + id);
      }
    }
  }
  bool InCluster(const std::string& agent) {
    for (const auto& [id, cluster] : model_.clusters) {
      if (std::count(cluster.agents.begin(), cluster.agents.end(), agent) > 0) return true;
    }
    return false;
  }

  // --- What happens by itself ---

  void Happening() {
    const std::string endpoint = Process(static_cast<int>(Pick(kProcesses)));
    ModelProcess& process = world_.processes[endpoint];
    switch (Pick(10)) {
      case 0:
        what_ = endpoint + " dies";
        process.alive = false;
        break;
      case 1:
      case 2:
        what_ = endpoint + " restarts";
        process.failed.clear();
        process.gateways_down.clear();
        world_.Boot(endpoint);
        break;
      case 3:
      case 4: {
        const uint64_t ms = OneIn(6) ? 301000 : OneIn(2) ? 6000 : 700;
        what_ = absl::StrCat(ms, " ms pass");
        model_.now += static_cast<int64_t>(ms);
        break;
      }
      case 5:
      case 6: {
        if (process.hosts.empty()) return;
        const std::string host =
            *std::next(process.hosts.begin(), static_cast<int64_t>(Pick(process.hosts.size())));
        const auto mask = static_cast<uint32_t>(Pick(16));
        what_ = absl::StrCat("failed IPUs of ", host, ": ", mask);
        process.failed.erase(host);
        if (mask != 0 && OneIn(2)) process.failed[host] = mask;
        process.gateways_down.erase(host);
        if (OneIn(4)) {
          process.gateways_down.insert(host);
          what_ += ", GW-Links down";
        }
        break;
      }
      case 7:
        what_ = endpoint + (process.slow ? " answers again" : " answers no more");
        process.slow = !process.slow && OneIn(2);
        break;
      case 8:
        if (process.rejects.empty()) {
          process.rejects = {absl::StrCat("p", Pick(24))};
        } else {
          process.rejects.clear();
        }
        what_ = absl::StrCat(endpoint, " rejects ", absl::StrJoin(process.rejects, " "));
        break;
      default:
        if (OneIn(2)) {
          what_ = "the controller is restarted";
          Restart();
        } else {
          what_ = "the controller is killed";
          Kill();
        }
    }
  }

  // --- The comparison ---

  void Compare() {
    std::map<std::string, std::string> expected, shown;
    for (const auto& [id, host] : model_.agents) {
      expected[id] = absl::StrCat(host, " ", model_.StatusOf(id), " ", model_.FreeIpus(id));
    }
    for (const auto& agent : controller_->ListAgents())
      shown[agent.id()] = absl::StrCat(agent.host(), " ", agent.status(), " ", agent.free_ipus());
    EXPECT_EQ(shown, expected);
    expected.clear();
    shown.clear();
    for (const auto& [id, cluster] : model_.clusters)
      expected[id] = absl::StrJoin(cluster.agents, " ");
    for (const auto& cluster : controller_->ListClusters())
      shown[cluster.id()] = absl::StrJoin(cluster.agent_ids(), " ");
    EXPECT_EQ(shown, expected);
    expected.clear();
    shown.clear();
    for (const std::string& id : model_.Allocations()) {
      const std::set<std::string> agents = model_.AgentsOfAllocation(id);
      expected[id] = absl::StrJoin(agents, " ");
    }
    for (const auto& allocation : controller_->ListAllocations()) {
      const std::set<std::string> agents(allocation.agent_ids().begin(),
                                         allocation.agent_ids().end());
      shown[allocation.id()] = absl::StrJoin(agents, " ");
    }
    EXPECT_EQ(shown, expected);
    ComparePartitions();
    for (const auto& [endpoint, process] : world_.processes) {
      if (!model_.MustKnowAll(endpoint, process)) continue;
      EXPECT_EQ(process.view, model_.known[endpoint].told) << endpoint;
    }
  }

  void ComparePartitions() {
    constexpr const char* kStates[] = {"PS_PENDING", "PS_ACTIVE", "PS_ERROR"};
    std::map<std::string, std::string> expected, shown;
    std::map<std::string, std::string> owners;
    for (const auto& [id, partition] : model_.partitions) {
      expected[id] = absl::StrCat(kStates[partition.state], " generation ", partition.generation,
                                  " of ", partition.wanted.allocation, ": ",
                                  absl::StrJoin(model_.Ipus(partition), " "));
    }
    for (const auto& listed : controller_->ListPartitions()) {
      const auto partition = controller_->GetPartition(listed.requirements().id());
      ASSERT_TRUE(partition.ok()) << partition.status();
      std::vector<std::string> ipus;
      for (const auto& gcd : partition->gcds()) {
        for (const auto& device : gcd.devices()) {
          ipus.push_back(absl::StrCat(device.agent_id(), ":", device.pcie_id()));
          EXPECT_TRUE(owners.try_emplace(ipus.back(), listed.requirements().id()).second)
              << ipus.back() << " is in two partitions";
        }
      }
      shown[listed.requirements().id()] =
          absl::StrCat(vipuuser::PartitionState_Name(listed.status().state()), " generation ",
                       listed.status().generation(), " of ", listed.requirements().allocation_id(),
                       ": ", absl::StrJoin(ipus, " "));
    }
    EXPECT_EQ(shown, expected);
  }

  std::mt19937_64 random_;
  RandomWorld world_;
  Model model_;
  fs::path directory_;
  int starts_ = 0;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Controller> controller_;
  std::string what_;
};

TEST(RandomOperations, StateEqualsTheModelsAfterEveryStep) {
  std::printf("seed %lu, %lu steps\n", g_seed, g_steps);
  Operations run(g_seed);
  for (uint64_t step = 0; step < g_steps; ++step) {
    run.Step();
    ASSERT_FALSE(testing::Test::HasFailure())
        << "step " << step << ": " << run.what()
        << "\nreplay: random_operations_test --seed=" << g_seed << " --steps=" << step + 1;
  }
}

}  // namespace
}  // namespace vpod::controller

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  spdlog::set_level(spdlog::level::off);
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    if (word == "--log") {
      spdlog::set_level(spdlog::level::info);
      continue;
    }
    const bool seed = absl::ConsumePrefix(&word, "--seed=");
    const bool good = seed ? absl::SimpleAtoi(word, &vpod::controller::g_seed)
                           : absl::ConsumePrefix(&word, "--steps=") &&
                                 absl::SimpleAtoi(word, &vpod::controller::g_steps);
    if (!good) {
      std::fprintf(stderr, "random_operations_test: error: unknown word %s\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
