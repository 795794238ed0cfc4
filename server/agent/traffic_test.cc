#include "server/agent/traffic.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace vpod::agent {
namespace {

// Machines m0, m1 … of whole slices, `per_ild` to an ILD.
vipuagent::AgentPartition Partition(uint32_t machines, uint32_t per_ild,
                                    const std::string& cluster_topology = "none") {
  vipuagent::AgentPartition partition;
  partition.set_id("p");
  partition.set_cluster_topology(cluster_topology);
  vipuagent::Gcd* gcd = nullptr;
  for (uint32_t machine = 0; machine < machines; ++machine) {
    if (machine % per_ild == 0) gcd = partition.add_gcds();
    vipuagent::Slice* slice = gcd->add_slices();
    slice->set_machine_host(absl::StrCat("m", machine));
    slice->set_first_pcie_id(3);
    slice->set_num_ipus(4);
    slice->set_ild(machine / per_ild);
  }
  return partition;
}

// IPU 0 sends 1000 bytes three times to IPU 1; both all-reduce 400 bytes.
std::shared_ptr<const program::Executable> TwoIpus() {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(2);
  program::v1::Program* program = executable.add_programs();
  program->set_name("p");
  for (uint32_t ipu = 0; ipu < 2; ++ipu) {
    program::v1::Ipu* description = executable.add_ipus();
    description->set_arena_bytes(4096);
    for (int64_t bytes : {1000, 400}) {
      program::v1::Tensor* tensor = description->add_tensors();
      tensor->set_type(program::v1::FLOAT32);
      tensor->add_dims(bytes / 4);
      tensor->set_offset(bytes == 1000 ? 0 : 1024);
    }
    program::v1::Instruction* copy = description->add_functions()->add_instructions();
    copy->mutable_exchange();
    (ipu == 0 ? copy->mutable_inputs() : copy->mutable_outputs())->Add(0);
    program::v1::Function* entry = description->add_functions();
    entry->add_instructions()->mutable_repeat()->set_count(3);
    program::v1::Instruction* reduce = entry->add_instructions();
    reduce->mutable_all_reduce()->set_operator_(program::v1::SUM);
    reduce->add_inputs(1);
    reduce->add_outputs(1);
    program->add_functions(1);
  }
  executable.add_exchanges()->add_moves()->set_to_ipu(1);
  auto parsed = program::Executable::Parse(program::Serialize(executable));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

ipuof::v1::JobMember Member(uint32_t offset, uint32_t local, uint32_t total) {
  ipuof::v1::JobMember job;
  job.set_replica_offset(offset);
  job.set_local_replicas(local);
  job.set_total_replicas(total);
  job.set_ipus_per_replica(2);
  return job;
}

std::string Text(const std::vector<MachineTraffic>& traffic) {
  std::string text;
  for (const MachineTraffic& machine : traffic) {
    for (const machine::PortBytes& port : machine.ports) {
      absl::StrAppend(&text, machine.machine, " ", arch::PortName(port.port), " ", port.tx, " ",
                      port.rx, "\n");
    }
  }
  return text;
}

TEST(TrafficTest, FlowsAreCopiesAndRings) {
  const auto executable = TwoIpus();
  EXPECT_EQ(FlowsOf(*executable, 0, Member(0, 1, 1)), (std::vector<Flow>{{0, 1, 3000}}));
  // Four replicas: 400 / 4 * 3 bytes each way, all of them ours.
  EXPECT_EQ(FlowsOf(*executable, 0, Member(0, 4, 4)).size(), 4u + 2 * 4 * 2);
  // Replicas 2 and 3 of four: their copies, what they send, and what comes from 1 and 0.
  EXPECT_EQ(FlowsOf(*executable, 0, Member(2, 2, 4)), (std::vector<Flow>{{0, 6, 300},
                                                                         {1, 7, 300},
                                                                         {2, 4, 300},
                                                                         {3, 5, 300},
                                                                         {4, 2, 300},
                                                                         {4, 5, 3000},
                                                                         {4, 6, 300},
                                                                         {5, 3, 300},
                                                                         {5, 7, 300},
                                                                         {6, 0, 300},
                                                                         {6, 4, 300},
                                                                         {6, 7, 3000},
                                                                         {7, 1, 300},
                                                                         {7, 5, 300}}));
}

// Four IPUs: IPU 0 sends 400 bytes to IPUs 1 and 2 and receives 400 from IPU 3, in one exchange
// that is executed twice at one place and once at another. A second exchange is never executed.
std::shared_ptr<const program::Executable> ManyMoves() {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(4);
  program::v1::Program* program = executable.add_programs();
  program->set_name("p");
  const auto move = [](program::v1::Exchange* exchange, uint32_t from, uint32_t to) {
    program::v1::Move* added = exchange->add_moves();
    added->set_from_ipu(from);
    added->set_to_ipu(to);
    added->set_to_tensor(1);
  };
  program::v1::Exchange* executed = executable.add_exchanges();
  move(executed, 0, 1);
  move(executed, 0, 2);
  move(executed, 3, 0);
  move(executable.add_exchanges(), 1, 2);
  for (uint32_t ipu = 0; ipu < 4; ++ipu) {
    program::v1::Ipu* description = executable.add_ipus();
    description->set_arena_bytes(1024);
    for (uint64_t offset : {0u, 512u}) {
      program::v1::Tensor* tensor = description->add_tensors();
      tensor->set_type(program::v1::FLOAT32);
      tensor->add_dims(100);
      tensor->set_offset(offset);
    }
    program::v1::Instruction step;
    step.mutable_exchange();
    for (int sent = ipu == 0 ? 2 : ipu == 3 ? 1 : 0; sent > 0; --sent) step.add_inputs(0);
    if (ipu != 3) step.add_outputs(1);
    *description->add_functions()->add_instructions() = step;
    program::v1::Function* entry = description->add_functions();
    entry->add_instructions()->mutable_repeat()->set_count(2);
    *entry->add_instructions() = step;
    program->add_functions(1);
  }
  auto parsed = program::Executable::Parse(program::Serialize(executable));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

TEST(TrafficTest, MovesCountAtTheirSendersAsOftenAsTheyAreExecuted) {
  EXPECT_EQ(FlowsOf(*ManyMoves(), 0, Member(0, 1, 1)),
            (std::vector<Flow>{{0, 1, 1200}, {0, 2, 1200}, {3, 0, 1200}}));
}

// One IPU does `count` all-to-alls of 256 KiB.
std::shared_ptr<const program::Executable> AllToAlls(int count) {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(1);
  program::v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes(2 << 18);
  for (int i = 0; i < 2; ++i) {
    program::v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(program::v1::FLOAT32);
    tensor->add_dims(1 << 16);
    tensor->set_offset(static_cast<uint64_t>(i) << 18);
  }
  program::v1::Program* program = executable.add_programs();
  program->set_name("p");
  program->add_functions(0);
  program::v1::Function* entry = ipu->add_functions();
  for (int i = 0; i < count; ++i) {
    program::v1::Instruction* op = entry->add_instructions();
    op->mutable_all_to_all();
    op->add_inputs(0);
    op->add_outputs(1);
  }
  auto parsed = program::Executable::Parse(program::Serialize(executable));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

TEST(TrafficTest, AllToAllsReachReplicasThatAreKnown) {
  const auto executable = AllToAlls(1);
  const uint64_t each = (1 << 18) / 8;
  EXPECT_EQ(FlowsOf(*executable, 0, Member(2, 1, 8)).size(), 2u * 7);
  EXPECT_EQ(FlowsOf(*executable, 0, Member(2, 1, 8), {1, 4}),
            (std::vector<Flow>{{1, 2, each}, {2, 1, each}, {2, 3, each}, {3, 2, each}}));
}

// As many as a program has place for, in the largest of jobs: 10^10 exchanges between replicas.
TEST(TrafficTest, ManyExchangesOfManyReplicasAreAddedUp) {
  const uint32_t count = 1 << 14, replicas = 1 << 16;
  const auto flows = FlowsOf(*AllToAlls(count), 0, Member(0, 16, replicas), {0, 16});
  EXPECT_EQ(flows.size(), 16u * 15);
  EXPECT_EQ(flows.front(), (Flow{0, 1, uint64_t{count} * (1 << 18) / replicas}));
}

TEST(TrafficTest, BytesSpreadOverTheLinksOfTheRoute) {
  const auto wiring = Wiring::Create(Partition(2, 2));
  ASSERT_TRUE(wiring.ok()) << wiring.status();
  // Units 0 and 1 on the partition's IPUs 3 and 4: column first, then up to the next machine.
  EXPECT_EQ(Text(TrafficOf(*wiring, {{0, 1, 1001}}, 0, 2, 3, {true, true})),
            "0 IPU0.NLC_W_2A 501 0\n"
            "0 IPU0.NLC_W_2B 500 0\n"
            "0 IPU1.NLC_E_2A 0 501\n"
            "0 IPU1.NLC_E_2B 0 500\n"
            "0 IPU1.NLC_W_0A 501 0\n"
            "0 IPU1.NLC_W_0B 500 0\n"
            "1 IPU3.NLC_W_1A 0 501\n"
            "1 IPU3.NLC_W_1B 0 500\n");
  EXPECT_EQ(Text(TrafficOf(*wiring, {{0, 1, 1001}}, 0, 2, 3, {false, true})),
            "1 IPU3.NLC_W_1A 0 501\n"
            "1 IPU3.NLC_W_1B 0 500\n");
}

TEST(TrafficTest, RacksTalkOverTheirGateways) {
  const auto wiring = Wiring::Create(Partition(2, 1, "looped"));
  ASSERT_TRUE(wiring.ok()) << wiring.status();
  EXPECT_EQ(Text(TrafficOf(*wiring, {{0, 4, 100}, {4, 0, 60}}, 0, 8, 0, {true, true})),
            "0 GW_E 50 30\n"
            "0 GW_W 50 30\n"
            "1 GW_E 30 50\n"
            "1 GW_W 30 50\n");
}

TEST(TrafficTest, InstancesOfOneProcessCountAFlowOnce) {
  const auto wiring = Wiring::Create(Partition(2, 2));
  ASSERT_TRUE(wiring.ok());
  const std::vector<Flow> received = {{1, 4, 100}};  // from an instance on machine 0
  EXPECT_EQ(Text(TrafficOf(*wiring, received, 4, 4, 4, {true, true})), "");
  EXPECT_NE(Text(TrafficOf(*wiring, received, 4, 4, 4, {false, true})), "");
}

// A rung alone has nowhere to go but to its other IPU, and only the ring closes a torus.
TEST(WiringTest, KnowsWhichLinksTrafficIsLedOver) {
  const auto names = [](const Wiring& wiring, uint32_t machine) {
    std::string text;
    for (uint32_t port : wiring.RoutedPorts(machine))
      if (arch::KindOfPort(port) == arch::LinkKind::kIpuLink)
        absl::StrAppend(&text, arch::PortName(port), " ");
    return text;
  };
  vipuagent::AgentPartition rung = Partition(1, 1);
  rung.mutable_gcds(0)->mutable_slices(0)->set_num_ipus(2);
  EXPECT_EQ(names(*Wiring::Create(rung), 0),
            "IPU2.NLC_W_0A IPU2.NLC_W_0B IPU2.NLC_W_1A IPU2.NLC_W_1B "
            "IPU3.NLC_E_0A IPU3.NLC_E_0B IPU3.NLC_E_1A IPU3.NLC_E_1B ");
  vipuagent::AgentPartition torus = Partition(4, 4);
  (*torus.mutable_target_options())["ipuLinkTopology"] = "torus";
  EXPECT_FALSE(absl::StrContains(names(*Wiring::Create(torus), 0), "IPU3.NLC_W_1A"));
  torus.set_ild_routing("RINGSWNC");
  EXPECT_TRUE(absl::StrContains(names(*Wiring::Create(torus), 0), "IPU3.NLC_W_1A"));
  EXPECT_TRUE(absl::StrContains(names(*Wiring::Create(torus), 0), "IPU3.NLC_E_2B"));
}

TEST(WiringTest, KnowsTheLinksBetweenItsIpus) {
  vipuagent::AgentPartition pair;
  vipuagent::Slice* slice = pair.add_gcds()->add_slices();
  slice->set_machine_host("m0");
  slice->set_first_pcie_id(1);
  slice->set_num_ipus(2);
  const auto wiring = Wiring::Create(pair);
  ASSERT_TRUE(wiring.ok()) << wiring.status();
  EXPECT_EQ(wiring->ipus(), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(wiring->LinksOf(0).size(), 12u);  // the six of the rung, from both ends
  const auto rack = Wiring::Create(Partition(4, 4));
  size_t links = 0;
  for (uint32_t machine = 0; machine < 4; ++machine) links += rack->LinksOf(machine).size();
  EXPECT_EQ(links, 2u * 76);
  EXPECT_EQ(rack->ipus_per_domain(), 16u);
  EXPECT_EQ(Wiring::Create(Partition(4, 2))->ipus_per_domain(), 8u);
  vipuagent::AgentPartition uneven = Partition(3, 2);
  EXPECT_EQ(Wiring::Create(uneven).status().message(),
            "partition p has IPU-Link domains of different sizes");
}

}  // namespace
}  // namespace vpod::agent
