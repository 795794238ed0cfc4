#include "tools/vpod/pod_references.h"

#include <gtest/gtest.h>

namespace vpod::tools {
namespace {

// A POD16 as `vpod up` makes it.
const KnownIds kPod = {.agents = {"ag0", "ag1", "ag2", "ag3"}, .clusters = {"c16"}};

std::string Error(const std::string& text, const KnownIds& pod = kPod) {
  const auto description = ParsePodFile("pod.yaml", text);
  EXPECT_TRUE(description.ok()) << description.status();
  const absl::Status status = CheckReferences(*description, pod);
  if (!status.ok()) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
  }
  return std::string(status.message());
}

TEST(PodReferencesTest, IdsOfTheFileAndOfThePodLeadSomewhere) {
  EXPECT_EQ(Error(R"(
clusters:
  - {id: c1, agents: [ag0, ag1]}
allocations:
  - {id: a1, cluster: c1, agents: [ag0]}
  - {id: a2, cluster: c16, agents: [ag2]}
users:
  - {id: alice, allocations: [a1, c1]}
partitions:
  - {id: p1, size: 4, allocation: a1}
  - {id: p2, size: 4, allocation: c16}
  - {id: p3, size: 4, cluster: c16}
)"),
            "");
  EXPECT_EQ(
      Error("partitions:\n  - {id: p1, size: 4, allocation: older}\n", {.allocations = {"older"}}),
      "");
}

TEST(PodReferencesTest, AnIdThatLeadsNowhereIsNamedWithItsLine) {
  EXPECT_EQ(Error("allocations:\n  - {id: a1, cluster: c16, agents: [ag0]}\n"
                  "partitions:\n  - id: p1\n    size: 4\n    allocation: a9\n"),
            "pod.yaml:6: partition p1: there is no allocation a9; there are a1, c16");
  EXPECT_EQ(Error("partitions:\n  - {id: p1, size: 4}\n  - {id: p2, size: 4, cluster: c9}\n"),
            "pod.yaml:3: partition p2: there is no cluster c9; there is c16");
  EXPECT_EQ(Error("users:\n  - id: alice\n    allocations:\n      - c16\n      - a9\n"),
            "pod.yaml:5: user alice: there is no allocation a9; there is c16");
  EXPECT_EQ(Error("clusters:\n  - id: c1\n    agents: [ag0,\n             ag4]\n"),
            "pod.yaml:4: cluster c1: there is no agent ag4; there are ag0, ag1, ag2, ag3");
  EXPECT_EQ(Error("allocations:\n  - {id: a1, cluster: c16, agents: [ag7]}\n"),
            "pod.yaml:2: allocation a1: there is no agent ag7; there are ag0, ag1, ag2, ag3");
  EXPECT_EQ(Error("allocations:\n  - {id: a1, cluster: c9, agents: [ag0]}\n", {}),
            "pod.yaml:2: allocation a1: there is no cluster c9; there is none");
}

TEST(PodReferencesTest, OfManyIdsTheFirstAreNamed) {
  KnownIds pod;
  for (char digit = '0'; digit <= '9'; ++digit) pod.clusters.insert(std::string("c") + digit);
  EXPECT_EQ(Error("partitions:\n  - {id: p1, size: 4, cluster: c}\n", pod),
            "pod.yaml:2: partition p1: there is no cluster c; there are c0, c1, c2, c3, c4, c5, "
            "c6, c7, … of 10");
}

}  // namespace
}  // namespace vpod::tools
