#include "tools/vpod/pod_file.h"

#include <gtest/gtest.h>

namespace vpod::tools {
namespace {

constexpr char kLab[] = R"(# Two racks' worth of a lab.
name: lab2
machines: 4
machine_type: bow2000
agents: processes
memory_limit: 4096
api_port: 8190
metrics_port: 2190
secure: true
clusters:
  - id: c1
    agents: [ag0, ag1]
    ipu_link_domains: 1
    topology: mesh
  - {id: c2, agents: [ag2, ag3], cluster_topology: none}
allocations:
  - id: a1
    cluster: c1
    agents: [ag0]
users:
  - id: alice
    allocations: [a1]
  - id: root
    admin: true
partitions:
  - id: p1
    size: 4
    allocation: a1
    reconfigurable: true
  - id: p2
    size: 8
    cluster: c2
    num_gcds: 2
    num_replicas: 2
    routing: SWNC
    index: 0
    shared: false
    relocatable: true
    auto_reset: false
)";

std::string Error(const std::string& text) {
  const auto pod = ParsePodFile("pod.yaml", text);
  return pod.ok() ? "" : std::string(pod.status().message());
}

TEST(PodFileTest, EverythingThatAPodHas) {
  const auto pod = ParsePodFile("pod.yaml", kLab);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(pod->name, "lab2");
  EXPECT_EQ(pod->request.ipus, 16);
  EXPECT_EQ(pod->request.machine_type, "bow2000");
  EXPECT_EQ(pod->request.agent_per_machine, true);
  EXPECT_EQ(pod->request.memory_limit_mib, 4096);
  EXPECT_EQ(pod->request.api_port, 8190);
  EXPECT_EQ(pod->request.metrics_port, 2190);
  EXPECT_EQ(pod->request.secure, true);
  EXPECT_EQ(pod->request.described_clusters, true);
  ASSERT_EQ(pod->clusters.size(), 2u);
  EXPECT_EQ(pod->clusters[0].ShortDebugString(),
            R"(id: "c1" agent_ids: "ag0" agent_ids: "ag1" num_ipulinkdomains: 1 topology: "mesh")");
  EXPECT_EQ(pod->clusters[1].cluster_topology(), "none");
  EXPECT_EQ(pod->allocations[0].ShortDebugString(),
            R"(id: "a1" cluster_id: "c1" agent_ids: "ag0")");
  ASSERT_EQ(pod->users.size(), 2u);
  EXPECT_EQ(pod->users[0].ShortDebugString(), R"(id: "alice" allocation_ids { names: "a1" })");
  EXPECT_EQ(pod->users[1].ShortDebugString(), R"(id: "root" admin: true)");
  ASSERT_EQ(pod->partitions.size(), 2u);
  EXPECT_EQ(pod->partitions[0].ShortDebugString(),
            R"(requirements { id: "p1" size: 4 allocation_id: "a1" reconfigurable: true })");
  EXPECT_TRUE(pod->partitions[1].relocatable());
  EXPECT_TRUE(pod->partitions[1].disable_auto_reset());
  EXPECT_TRUE(pod->partitions[1].requirements().has_shared());
  EXPECT_TRUE(pod->partitions[1].requirements().has_index());
}

TEST(PodFileTest, PlacesOfWhatItDescribes) {
  const auto pod = ParsePodFile("pod.yaml", kLab);
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(pod->PlaceOf("cluster c1"), "pod.yaml:11: ");
  EXPECT_EQ(pod->PlaceOf("cluster c1 agents ag1"), "pod.yaml:12: ");
  EXPECT_EQ(pod->PlaceOf("partition p1"), "pod.yaml:26: ");
  EXPECT_EQ(pod->PlaceOf("partition p1 allocation"), "pod.yaml:28: ");
  EXPECT_EQ(pod->PlaceOf("partition p9"), "");
}

TEST(PodFileTest, WhatIsNotGivenIsNotSet) {
  const auto pod = ParsePodFile("pod.yaml", "machines: 1\n");
  ASSERT_TRUE(pod.ok()) << pod.status();
  EXPECT_EQ(pod->request.ipus, 4);
  EXPECT_FALSE(pod->request.api_port.has_value());
  EXPECT_FALSE(pod->request.secure.has_value());
  EXPECT_EQ(pod->request.described_clusters, false);
}

TEST(PodFileTest, MistakesAreNamedWithTheirLine) {
  EXPECT_EQ(Error("name: x\nmachinez: 4\n"),
            "pod.yaml:2: a POD has no key 'machinez'; known are agents, allocations, api_port, "
            "cluster_topology, clusters, machine_type, machines, memory_limit, metrics_port, name, "
            "partitions, secure, users");
  EXPECT_EQ(Error("machines: 3\n"), "pod.yaml:1: machines must be a power of two");
  EXPECT_EQ(Error("machines: -4\n"), "pod.yaml:1: machines must be a number of 1 to 16384");
  EXPECT_EQ(Error("machines: [4]\n"), "pod.yaml:1: machines must be a number of 1 to 16384");
  EXPECT_EQ(Error("machines: 4\nmachines: 4\n"), "pod.yaml:2: machines is given twice");
  EXPECT_EQ(Error("machine_type: m3000\n"),
            "pod.yaml:1: machine_type must be one of m2000, bow2000");
  EXPECT_EQ(Error("partitions:\n  - id: p1\n"), "pod.yaml:2: a partition needs size");
  EXPECT_EQ(Error("partitions:\n  - id: p1\n    size: 4\n    num_gcds: 0\n"),
            "pod.yaml:4: num_gcds must be a number of 1 to 65536");
  EXPECT_EQ(Error("partitions:\n  - {id: p1, size: 4}\n  - {id: p1, size: 8}\n"),
            "pod.yaml:3: a partition p1 is described twice");
  EXPECT_EQ(Error("partitions: p1\n"), "pod.yaml:1: partitions must be a list");
  EXPECT_EQ(Error("users:\n- id: alice\n  admin: maybe\n"),
            "pod.yaml:3: admin must be true or false");
  EXPECT_EQ(Error("secure: perhaps\n"), "pod.yaml:1: secure must be true or false");
  EXPECT_EQ(Error("users:\n- id: \"\"\n"), "pod.yaml:2: id must be a word");
  EXPECT_EQ(Error(""), "pod.yaml:1: a POD must have lines of key: value");
  EXPECT_EQ(Error("- a\n"), "pod.yaml:1: a POD must have lines of key: value");
  EXPECT_EQ(Error("name: [\n").rfind("pod.yaml:", 0), 0u) << Error("name: [\n");
  EXPECT_EQ(Error("name: " + std::string(100000, '[')),
            "pod.yaml:1: lists or maps lie too deep in each other");
}

constexpr char kIdRule[] =
    "Ids have 1 to 63 letters, digits, '.', '_' and '-' and begin with a letter or digit.";

TEST(PodFileTest, IdsThatTheControllerWouldRefuseAreNamedWithTheirLine) {
  const auto expect = [](const std::string& text, const std::string& where, const std::string& id) {
    EXPECT_EQ(Error(text), "pod.yaml:" + where + ": Invalid id '" + id + "'. " + kIdRule);
  };
  expect("partitions:\n  - {id: p1, size: 4}\n  - {id: p 2, size: 4}\n", "3: id", "p 2");
  expect("partitions:\n  - id: p1\n    size: 4\n    allocation: a|1\n", "4: allocation", "a|1");
  expect("partitions:\n  - {id: p1, size: 4, cluster: c/1}\n", "2: cluster", "c/1");
  expect("clusters:\n  - {id: -c1, agents: [ag0]}\n", "2: id", "-c1");
  expect("clusters:\n  - id: c1\n    agents:\n      - ag0\n      - ag,1\n", "5: agents", "ag,1");
  expect("allocations:\n  - {id: ../a1, cluster: c1, agents: [ag0]}\n", "2: id", "../a1");
  expect("users:\n  - id: alice\n    allocations: [a1, 'a 2']\n", "3: allocations", "a 2");
  const std::string longest(63, 'u');
  EXPECT_EQ(Error("users:\n  - id: " + longest + "\n"), "");
  expect("users:\n  - id: " + longest + "u\n", "2: id", longest + "u");
}

}  // namespace
}  // namespace vpod::tools
