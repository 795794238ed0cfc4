// A program of control instructions, in protobuf's text format, for tests that run or change it.
#pragma once

namespace vpod::program {

// Tensor 0 is the int32 "sum", 1 the int32 "counter", 2 the int32 "limit", 3 the bool "more".
// Program 0 sums up the numbers of its rounds, in a function that another calls. Program 1 doubles
// the sum as long as it is below the limit, at most 20 times. Program 2 adds the limit to the sum
// if `more`, and otherwise clears it.
inline constexpr char kControlProgram[] = R"(
  ipus_per_replica: 1
  ipus {
    arena_bytes: 320
    tensors { type: INT32 }
    tensors { type: INT32 offset: 64 }
    tensors { type: INT32 offset: 128 }
    tensors { type: BOOL offset: 192 }
    functions { instructions { binary { operator: ADD } inputs: 0 inputs: 1 outputs: 0 } }
    functions { instructions { call { function: 0 } } }
    functions { instructions { repeat { function: 1 count: 5 } outputs: 1 } }
    functions { instructions { binary { operator: LESS } inputs: 0 inputs: 2 outputs: 3 } }
    functions {
      instructions { binary { operator: ADD } inputs: 0 inputs: 0 outputs: 0 }
      instructions { call { function: 3 } }
    }
    functions {
      instructions { call { function: 3 } }
      instructions { while { function: 4 max_rounds: 20 } inputs: 3 }
    }
    functions { instructions { binary { operator: ADD } inputs: 0 inputs: 2 outputs: 0 } }
    functions { instructions { fill {} outputs: 0 } }
    functions { instructions { if { then_function: 6 else_function: 7 } inputs: 3 } }
    functions { instructions { if { then_function: 6 } inputs: 3 } }
  }
  variables { name: "sum" }
  variables { name: "counter" tensor: 1 }
  variables { name: "limit" tensor: 2 }
  variables { name: "more" tensor: 3 }
  programs { name: "count" functions: 2 }
  programs { name: "double" functions: 5 }
  programs { name: "branch" functions: 8 }
  programs { name: "then" functions: 9 }
)";

}  // namespace vpod::program
