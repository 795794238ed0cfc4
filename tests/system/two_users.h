// The description of a POD of two machines with two users, each with an allocation of one machine.
#pragma once

namespace vpod::testing {

// For `vpod up -f`; a test may append `partitions:`.
inline constexpr char kTwoUsers[] = R"(clusters:
  - {id: c1, agents: [ag0, ag1]}
allocations:
  - {id: a0, cluster: c1, agents: [ag0]}
  - {id: a1, cluster: c1, agents: [ag1]}
users:
  - {id: alice, allocations: [a0]}
  - {id: bob, allocations: [a1]}
)";

}  // namespace vpod::testing
