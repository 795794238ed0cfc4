// Implements `test cluster` (spec/vipu.md 14): plans the tests of a cluster's cables and links from
// its topology, has the agents carry them out, and names the failures. Knows nothing of the
// controller's state and holds no lock.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/arch/topology.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuagent.pb.h"

namespace vpod::controller {

// A cluster at the moment of its test.
struct ClusterUnderTest {
  struct Machine {
    std::string agent_id;
    std::string host;      // management address
    std::string endpoint;  // of the process that holds it; empty: nobody does, or it is silent
  };
  arch::ClusterShape shape;
  std::vector<Machine> machines;  // in cluster order
};

// Whether the status of a call says that its end-point did not answer, rather than what.
bool IsSilence(const absl::Status& status);

// Ways to the agents. They block for at most some seconds and are called by several threads.
struct AgentCalls {
  std::function<absl::StatusOr<vipuagent::DescribeMachineReply>(const std::string& endpoint,
                                                                const std::string& host)>
      describe;
  std::function<absl::StatusOr<vipuagent::TestLinkReply>(const std::string& endpoint,
                                                         const vipuagent::TestLinkRequest& request)>
      test_link;
  std::function<bool()> is_cancelled = [] { return false; };  // asked before each of the others
};

// Runs the tests named (of: versions, cabling, sync, links, traffic, gw-links; none: all) and calls
// `row` in this thread for each of the six rows as it is complete, until it says false or the calls
// are cancelled, which makes it Cancelled. InvalidArgument for another name.
absl::Status TestCluster(const ClusterUnderTest& cluster, const AgentCalls& calls,
                         const std::vector<std::string>& tests,
                         const std::function<bool(const vipuadmin::TestClusterReply&)>& row);

}  // namespace vpod::controller
