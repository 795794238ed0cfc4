// Processes of agents: versions, discovery, moves, and what follows for partitions and the log.
// Their health is the subject of registry_health_test.cc.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"
#include "server/controller/controller_fixture.h"
#include "server/controller/registry_fixture.h"

namespace vpod::controller {
namespace {

using std::chrono::seconds;

TEST_F(RegistryTest, AnotherMinorVersionIsRefusedAndTheAgentSaysWhy) {
  CreateAgents(0, 1);
  vipuagent::RegisterRequest request;
  request.set_endpoint("process-1");
  request.set_boot_id("boot-1");
  request.set_version("1.17.3");
  request.add_machines()->set_host(Host(0));
  request.mutable_machines(0)->set_port(8080);
  constexpr char kReason[] =
      "Agent software has version '1.17.3' and the controller 1.18.0; install 1.18 on both.";
  EXPECT_EQ(Text(controller_->Register(request)), absl::StrCat("FAILED_PRECONDITION: ", kReason));
  EXPECT_FALSE(controller_->Register(request).ok());
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), kReason);
  EXPECT_EQ(controller_->GetAgent("ag0")->status(), "Unknown");
  EXPECT_EQ(EventsOf("agent ag0"),
            (std::vector<std::string>{"created at 10.1.2.1:8080",
                                      absl::StrCat("refused: ", kReason)}));  // once
  request.set_version("1.18.7");
  EXPECT_TRUE(controller_->Register(request).ok());
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), "");
  EXPECT_EQ(controller_->GetAgent("ag0")->status(), "Up");
}

TEST_F(RegistryTest, RegistrationsAreBounded) {
  vipuagent::RegisterRequest good;
  good.set_endpoint("process-1");
  good.set_boot_id("boot-1");
  good.set_version(kVersion);
  good.add_machines()->set_host(Host(0));
  good.mutable_machines(0)->set_port(8080);
  vipuagent::RegisterRequest request = good;
  request.set_version(std::string(301, '1'));
  EXPECT_EQ(Text(controller_->Register(request)),
            "INVALID_ARGUMENT: Registration: version has 301 bytes, at most 300.");
  request = good;
  request.clear_machines();
  EXPECT_EQ(Text(controller_->Register(request)),
            "INVALID_ARGUMENT: Registration: endpoint, boot_id and machines are needed.");
  request = good;
  request.mutable_machines(0)->set_port(70000);
  EXPECT_EQ(controller_->Register(request).code(), absl::StatusCode::kInvalidArgument);
  request = good;
  request.mutable_machines(0)->set_board_type(std::string(1000, 'M'));
  EXPECT_EQ(controller_->Register(request).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(controller_->DiscoverAgents(false, "")->empty());
  EXPECT_TRUE(controller_->Register(good).ok());
}

TEST_F(RegistryTest, UnknownMachinesThatFallSilentAreForgotten) {
  Register(0, 2, "process-1");
  Register(2, 1, "process-2");
  CreateAgents(0, 1);
  gateway_.ConfirmAll();
  EXPECT_EQ(controller_->DiscoverAgents(false, "")->size(), 3u);
  Advance(seconds(6));
  EXPECT_EQ(controller_->DiscoverAgents(false, "")->size(),
            2u);  // those of a process with an agent
  EXPECT_EQ(gateway_.forgotten, (std::vector<std::string>{"process-2"}));
  EXPECT_EQ(controller_->GetAgent("ag0")->status(), "Down");
  gateway_.Answer(absl::DeadlineExceededError("silence"));  // asked before it was Down
  vipuagent::HeartbeatRequest late;
  late.set_endpoint("process-2");
  late.set_boot_id("boot-1");
  EXPECT_TRUE(controller_->Heartbeat(late).register_());
  ASSERT_TRUE(controller_->RemoveAgent("ag0", "root").ok());
  controller_->Tick();
  EXPECT_TRUE(controller_->DiscoverAgents(false, "")->empty());
}

// Whatever it names, a message that is refused is one line of the log.
TEST_F(RegistryTest, ARefusedRegistrationIsOneEvent) {
  CreateAgents(0, 2);
  vipuagent::RegisterRequest request = Registration(0, 100);
  request.set_version("1.17.3");
  EXPECT_FALSE(controller_->Register(request).ok());
  vipuadmin::ListEventsRequest all;
  const auto events = controller_->ListEvents(all);
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_EQ(events->size(), 3u);  // two agents were created
  EXPECT_EQ(events->back().object, "agents of process-1");
  EXPECT_EQ(events->back().text,
            "refused: 100 machines: Agent software has version '1.17.3' and the controller 1.18.0; "
            "install 1.18 on both.");
  EXPECT_NE(controller_->GetAgent("ag1")->error(), "") << "each of them says why";
}

TEST_F(RegistryTest, TooManyUnknownMachinesAreRefused) {
  vipuagent::RegisterRequest request;
  request.set_endpoint("process-1");
  request.set_boot_id("boot-1");
  request.set_version(kVersion);
  for (size_t i = 0; i < Controller::kMaxUnknownMachines; ++i) {
    vipuagent::Machine* machine = request.add_machines();
    machine->set_host(absl::StrCat("m", i));
    machine->set_port(8080);
  }
  ASSERT_TRUE(controller_->Register(request).ok());
  ASSERT_TRUE(controller_->Register(request).ok());  // the same again
  request.clear_machines();
  request.set_endpoint("process-2");
  request.add_machines()->set_host("another");
  request.mutable_machines(0)->set_port(8080);
  EXPECT_EQ(Text(controller_->Register(request)),
            "RESOURCE_EXHAUSTED: More than 32768 unknown machines have registered; add some with "
            "'vipu-admin discover agents --add', or stop them.");
  ASSERT_TRUE(CreateAgent("ag0", "m0").ok());
  EXPECT_TRUE(controller_->Register(request).ok());
}

TEST_F(RegistryTest, AMachineOfALivingProcessIsNotTakenOver) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  vipuagent::RegisterRequest request;
  request.set_endpoint("process-2");
  request.set_boot_id("boot-2");
  request.set_version(kVersion);
  request.add_machines()->set_host(Host(0));
  request.mutable_machines(0)->set_port(8080);
  constexpr char kReason[] =
      "Machine 10.1.2.1:8080 is held by the living process at process-1; stop one of the two.";
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Text(controller_->Register(request)), absl::StrCat("ALREADY_EXISTS: ", kReason));
    Advance(seconds(1));
    Heartbeat();
  }
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(controller_->GetAgent("ag0")->status(), "Up");
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), kReason);
  EXPECT_EQ(EventsOf("agent ag0").back(), absl::StrCat("refused: ", kReason));
  EXPECT_EQ(EventsOf("agent ag0").size(), 2u);
  for (int i = 0; i < 6; ++i) {
    Advance(seconds(1));
    Heartbeat();
  }
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), "");  // it does not ask any more
  Advance(seconds(6));
  EXPECT_TRUE(controller_->Register(request).ok());  // the former is silent
  gateway_.ConfirmAll();
  EXPECT_EQ(controller_->GetPartitionConfig("p1", 0)->devices(0).endpoint(), "process-2");
  vipuagent::HeartbeatRequest late;
  late.set_endpoint("process-1");
  late.set_boot_id("boot-1");
  controller_->Tick();
  EXPECT_TRUE(controller_->Heartbeat(late).register_());  // and is refused
}

TEST_F(RegistryTest, DiscoveryAddsAllMachinesThatAreNotAgents) {
  Register(0, 12);
  ASSERT_TRUE(CreateAgent("ag1", Host(0)).ok());
  const auto found = controller_->DiscoverAgents(true, "root");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ((*found)[0].agent_id(), "ag1");
  EXPECT_EQ((*found)[1].agent_id(), "ag12");  // its own number is taken
  EXPECT_EQ((*found)[2].agent_id(), "ag2");
  EXPECT_EQ((*found)[2].host(), "10.1.2.3");
  EXPECT_EQ(controller_->ListAgents().size(), 12u);
  EXPECT_EQ(controller_->GetAgent("ag11")->status(), "Up");
  Start();
  EXPECT_EQ(controller_->ListAgents().size(), 12u);
}

TEST_F(RegistryTest, MachinesOnInterfacesOfDiscoveryAddThemselves) {
  options_.autodiscovery_interfaces = {"eth1", "eth2"};
  Start();
  Register(0, 2);
  EXPECT_TRUE(controller_->ListAgents().empty());
  options_.autodiscovery_interfaces = {"eth1", "eth0"};
  Start();
  Register(0, 2);
  EXPECT_EQ(controller_->GetAgent("ag0")->status(), "Up");
  EXPECT_EQ(controller_->ListAgents().size(), 2u);
  EXPECT_EQ(EventsOf("agents"), (std::vector<std::string>{"2 discovered and added: ag0 to ag1"}));
  ASSERT_TRUE(controller_->RemoveAgent("ag0", "root").ok());
  Register(2, 1, "process-2");
  ASSERT_EQ(controller_->ListAgents().size(), 2u);  // who was removed stays away
  EXPECT_EQ(controller_->ListAgents()[1].id(), "ag2");
}

TEST_F(RegistryTest, MovedAgentTakesItsPartitionsAlong) {
  CreatePod(1);
  Register(1, 1, "process-2");
  gateway_.ConfirmAll();
  CreateActive(Wanted("p1", 4));
  vipuadmin::UpdateAgentRequest request;
  request.set_id("ag0");
  request.set_host(Host(1));
  ASSERT_TRUE(controller_->UpdateAgent(request, "root").ok());
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(controller_->GetPartitionConfig("p1", 0)->devices(0).endpoint(), "process-2");
  request.set_host("");
  request.set_port(70000);
  EXPECT_EQ(controller_->UpdateAgent(request, "root").code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RegistryTest, AgentsAndClustersAreReset) {
  CreatePod(2);
  ASSERT_TRUE(controller_->ResetAgent("ag1", "root").ok());
  EXPECT_EQ(gateway_.resets, (std::vector<std::string>{"process-1 10.1.2.2"}));
  ASSERT_TRUE(controller_->ResetCluster("c1", "root").ok());
  EXPECT_EQ(gateway_.resets.size(), 3u);
  CreateActive(Wanted("p1", 1));
  EXPECT_EQ(Text(controller_->ResetCluster("c1", "root")),
            "FAILED_PRECONDITION: Cluster c1 is in use by partition p1; remove it first.");
  // To clients UNAVAILABLE and DEADLINE_EXCEEDED mean the controller itself.
  for (const absl::Status& silence :
       {absl::UnavailableError("no connection"), absl::DeadlineExceededError("too late")}) {
    gateway_.reset_status = silence;
    EXPECT_EQ(Text(controller_->ResetAgent("ag1", "root")),
              "FAILED_PRECONDITION: Agent ag1 does not answer.");
  }
  gateway_.reset_status = absl::NotFoundError("no such machine");
  EXPECT_EQ(Text(controller_->ResetAgent("ag1", "root")),
            "NOT_FOUND: Agent ag1 was not reset: no such machine");
  CreateAgents(2, 1);
  EXPECT_EQ(Text(controller_->ResetAgent("ag2", "root")),
            "FAILED_PRECONDITION: Agent ag2 does not answer.");
}

TEST_F(RegistryTest, OneRefusedPartitionDoesNotHinderTheOthers) {
  CreatePod(1);
  ASSERT_TRUE(Create("good", 1).ok());
  ASSERT_TRUE(Create("bad", 1).ok());
  ASSERT_TRUE(Create("fine", 1).ok());
  while (!gateway_.calls.empty()) {
    bool bad = false;
    for (const auto& spec : gateway_.calls.front().request.partitions())
      bad = bad || spec.id() == "bad";
    gateway_.Answer(bad ? absl::InvalidArgumentError("no such thing") : absl::OkStatus());
  }
  EXPECT_EQ(StateOf("good"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StateOf("fine"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StatusOf("bad").message(), "no such thing");
}

TEST_F(RegistryTest, EventsTellWhatWasAskedAndWhatHappened) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  Advance(seconds(6));
  Heartbeat();
  ASSERT_TRUE(Remove("p1").ok());
  const std::vector<std::string> expected = {"created with 4 IPUs of allocation c1 from ag0",
                                             "PENDING -> ACTIVE",
                                             "ACTIVE -> ERROR: Agent ag0 does not answer.",
                                             "ERROR -> PENDING",
                                             "PENDING -> ACTIVE",
                                             "removed"};
  EXPECT_EQ(EventsOf("partition p1"), expected);
  Start();
  EXPECT_EQ(EventsOf("partition p1"), expected);
  const auto all = *controller_->ListEvents({});
  for (size_t i = 1; i < all.size(); ++i) EXPECT_EQ(all[i].number, all[i - 1].number + 1);
  vipuadmin::ListEventsRequest newest;
  newest.set_limit(1);
  EXPECT_EQ((*controller_->ListEvents(newest))[0].text, "removed");
  EXPECT_EQ((*controller_->ListEvents(newest))[0].user, "alice");
  newest.set_after(all.back().number);
  EXPECT_TRUE(controller_->ListEvents(newest)->empty());
}

TEST_F(RegistryTest, RestartedControllerWaitsForAllMachinesOfAPartition) {
  CreatePodOfTwoProcesses();
  CreateActive(Wanted("p1", 8));
  Start();
  Register(0, 1, "process-1");
  EXPECT_TRUE(gateway_.calls.empty());  // a configuration without p1 would end its jobs
  Register(1, 1, "process-2");
  EXPECT_EQ(gateway_.Answer().request.partitions_size(), 1);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  Start();
  Register(0, 1, "process-1");
  Advance(seconds(3));
  Register(0, 1, "process-1");
  Advance(seconds(3));
  EXPECT_EQ(gateway_.Answer().request.partitions_size(), 0);  // not for ever
}

TEST_F(RegistryTest, TheInterfaceIsTheControllersOwn) {
  options_.autodiscovery_interfaces = {"eth0"};
  Start();
  Register(0, 1, "process-1", "boot-1", /*heard_on=*/"lo");  // it calls itself "eth0"
  EXPECT_TRUE(controller_->ListAgents().empty());
  EXPECT_EQ((*controller_->DiscoverAgents(false, ""))[0].network_interface(), "lo");
  Register(1, 1, "process-2", "boot-2", /*heard_on=*/"eth0");
  ASSERT_EQ(controller_->ListAgents().size(), 1u);
  EXPECT_EQ(controller_->ListAgents()[0].host(), Host(1));
}

// Declarations of agents are kept in one line, and in numbers that a machine can have.
TEST_F(RegistryTest, WhatAnAgentDeclaresIsCheckedByField) {
  CreatePod(1);
  vipuagent::RegisterRequest good;
  good.set_endpoint("process-1");
  good.set_boot_id("boot-1");
  good.set_version(kVersion);
  vipuagent::Machine* machine = good.add_machines();
  machine->set_host(Host(0));
  machine->set_port(8080);
  ASSERT_TRUE(controller_->Register(good, "eth0").ok());
  using Spoil = std::function<void(vipuagent::RegisterRequest&, const std::string&)>;
  const std::pair<const char*, Spoil> fields[] = {
      {"endpoint", [](auto& r, const auto& text) { r.set_endpoint(text); }},
      {"boot_id", [](auto& r, const auto& text) { r.set_boot_id(text); }},
      {"metrics_endpoint", [](auto& r, const auto& text) { r.set_metrics_endpoint(text); }},
      {"host", [](auto& r, const auto& text) { r.mutable_machines(0)->set_host(text); }},
      {"data_ip", [](auto& r, const auto& text) { r.mutable_machines(0)->set_data_ip(text); }},
      {"board_type",
       [](auto& r, const auto& text) { r.mutable_machines(0)->set_board_type(text); }},
      {"clock", [](auto& r, const auto& text) { r.mutable_machines(0)->set_clock(text); }},
  };
  for (const auto& [name, spoil] : fields) {
    for (const std::string& text :
         {std::string("a\x1b[2J"), std::string("a\nb"), std::string("\u202E"),
          std::string("a\"],\"x"), std::string(301, 'x')}) {
      vipuagent::RegisterRequest bad = good;
      spoil(bad, text);
      const absl::Status status = controller_->Register(bad, "eth0");
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_NE(status.message().find(name), absl::string_view::npos) << status;
    }
  }
  // Health: names of links that exist; everything else is left out, and not repeated in events.
  Heartbeat({}, {std::string(1 << 16, 'x'), "a\x1b[2Jb", "IPU3.NLC_E_0A is down"});
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), "link IPU3.NLC_E_0A is down.");
}

vipuagent::Holding Held(const std::string& host, uint32_t ipu, const std::string& partition,
                        uint64_t generation) {
  vipuagent::Holding holding;
  holding.set_host(host);
  holding.set_pcie_id(ipu);
  holding.set_partition_id(partition);
  holding.set_config_generation(generation);
  holding.set_holder("pid 4711 on host (train of alice)");
  return holding;
}

// The store is of yesterday: what jobs hold since then is nobody's, and is given to nobody.
TEST_F(RegistryTest, IpusOfJobsThatTheStoreDoesNotKnowAreUnclaimed) {
  CreatePod(1);
  CreateActive(Wanted("known", 1));
  const uint64_t generation = Get("known").status().generation();
  Start();
  vipuagent::RegisterRequest request = Registration();
  request.set_controller_store(store_->id());
  *request.add_held() = Held(Host(0), 3, "known", generation);
  *request.add_held() = Held(Host(0), 2, "lost", 77);
  *request.add_held() = Held(Host(0), 1, "lost", 77);
  ASSERT_TRUE(controller_->Register(request, "eth0").ok());
  vipuagent::HeartbeatRequest heartbeat;
  heartbeat.set_endpoint("process-1");
  heartbeat.set_boot_id("boot-1");
  // Before it has a configuration it cannot tell whose jobs are unclaimed, and does not.
  controller_->Heartbeat(heartbeat);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("known"), vipuuser::PS_ACTIVE);
  const std::string why =
      "IPUs 2 1 are UNCLAIMED: pid 4711 on host (train of alice) of partition lost holds them "
      "until it ends, or until 'reset agent'.";
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), why);
  EXPECT_EQ(*controller_->AvailablePartitions(1, Anyone()), 1u);
  EXPECT_FALSE(Create("p2", 2).ok());
  EXPECT_TRUE(Create("p1", 1).ok());  // IPU 0
  gateway_.ConfirmAll();
  // The job ends.
  heartbeat.set_configure_sequence(UINT64_MAX);
  controller_->Heartbeat(heartbeat);
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), "");
  EXPECT_EQ(*controller_->AvailablePartitions(1, Anyone()), 2u);
}

TEST_F(RegistryTest, AControllerEndsWhenALaterOneHasConfiguredAnAgent) {
  int fenced = 0;
  options_.on_fenced = [&] { ++fenced; };
  Start();
  CreatePod(1);
  CreateActive(Wanted("p1", 1));
  vipuagent::RegisterRequest request = Registration();
  request.set_controller_epoch(store_->epoch() + 1);
  request.set_controller_boot_id("another");
  request.set_controller_store("of another POD");
  EXPECT_TRUE(controller_->Register(request, "eth0").ok());
  EXPECT_EQ(fenced, 0);
  request.set_controller_store(store_->id());
  // Whoever reaches the controller can say so, and knows the id of the store; an agent that was
  // configured by this controller knows its proof, too.
  for (const std::string& proof : {std::string(), ProofOf("another", store_->epoch()),
                                   ProofOf("one", store_->epoch() + 1), std::string(64, '0')}) {
    request.set_controller_proof(proof);
    EXPECT_EQ(Text(controller_->Register(request, "eth0")).substr(0, 77),
              "FAILED_PRECONDITION: No proof that another controller has taken over: it is s");
    EXPECT_EQ(fenced, 0);
    EXPECT_TRUE(controller_->fenced().ok());
  }
  request.set_controller_proof(ProofOf("another", store_->epoch() + 1));
  EXPECT_EQ(Text(controller_->Register(request, "eth0")),
            absl::StrCat("FAILED_PRECONDITION: another controller has taken over: one of epoch ",
                         store_->epoch() + 1,
                         " has configured the agent at process-1; this one "
                         "has epoch ",
                         store_->epoch()));
  EXPECT_EQ(fenced, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(Create("p2", 1)));
  EXPECT_TRUE(absl::IsFailedPrecondition(Remove("p1")));
  EXPECT_TRUE(gateway_.calls.empty());
  // It stays so.
  controller_.reset();
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Controller::Create(store_.get(), &gateway_, options_).status()));
  ASSERT_TRUE(store_->TakeOver().ok());
  EXPECT_TRUE(Controller::Create(store_.get(), &gateway_, options_).ok());
}

TEST_F(RegistryTest, AControllerThatAnAgentRefusesEnds) {
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 1).ok());
  const std::string proof = gateway_.calls.front().request.controller_proof();
  EXPECT_EQ(proof.size(), 64u);
  vipuagent::ConfigureReply reply;
  reply.mutable_later()->set_epoch(store_->epoch() + 1);
  reply.mutable_later()->set_boot_id("later");
  for (const std::string& wrong : {std::string(), proof}) {
    reply.mutable_later()->set_proof(wrong);
    gateway_.Answer(absl::OkStatus(), reply);
    EXPECT_TRUE(controller_->fenced().ok());
    EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING) << "it has confirmed nothing";
    controller_->Tick();
    ASSERT_EQ(gateway_.calls.size(), 1u) << "it is asked again";
    EXPECT_EQ(gateway_.calls.front().request.partitions_size(), 1);
  }
  reply.mutable_later()->set_proof(ProofOf("later", store_->epoch() + 1));
  gateway_.Answer(absl::OkStatus(), reply);
  EXPECT_EQ(
      controller_->fenced().message(),
      absl::StrCat("another controller has taken over: one of epoch ", store_->epoch() + 1,
                   " has configured the agent at process-1; this one has epoch ", store_->epoch()));
  EXPECT_TRUE(gateway_.calls.empty());
}

}  // namespace
}  // namespace vpod::controller
