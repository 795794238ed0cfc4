// What an instruction does on the tiles of its IPU: steps, one after the other, and bytes. Each op
// has a function that plans it (op_plans.h); one function prices all plans. The plans of today are
// even: all tiles that are needed do the same.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "device/arch/hardware.h"
#include "device/model/cost.h"

namespace vpod::model {

// Program of a tile's workers.
enum class Vertex { kElementwise, kReduction, kAmp };

// The work of each of some neighbouring tiles in a compute set.
struct TileWork {
  uint32_t tiles = 0;
  Vertex vertex = Vertex::kElementwise;
  uint64_t supervisor_cycles = 0;  // of a call of the vertex
  uint64_t worker_cycles = 0;      // of a call, by the slowest of the six workers
  uint64_t calls = 1;              // one after the other
};

// All tiles compute; the slowest decides.
struct ComputeSet {
  std::vector<TileWork> classes;  // other tiles are idle
};

// The bytes that each of some neighbouring tiles receives, or sends if that is more.
struct TileTraffic {
  uint32_t tiles = 0;
  uint64_t bytes = 0;
};

// An exchange on the chip with its sync; the busiest tile decides.
struct TileExchange {
  std::vector<TileTraffic> classes;
};

// A transfer between host and IPU in which some tiles take part.
struct StreamTransfer {
  bool to_host = false;
  uint64_t bytes = 0;
  uint32_t tiles = 0;
};

// A transfer between an IPU and the streaming memory of its machine, in which some tiles take part.
struct RemoteTransfer {
  uint64_t bytes = 0;
  uint32_t tiles = arch::kTilesPerIpu;
};

// Bytes that move between two IPUs of a replica.
struct InterIpuMove {
  uint64_t bytes;
  uint32_t from_ipu, to_ipu;
};

// An exchange between IPUs of a replica. Moves go side by side, but those that leave, or reach, the
// same IPU share its links. It takes the same time for all IPUs that take part.
struct InterIpuExchange {
  std::vector<InterIpuMove> moves;
};

// A phase of a collective: data go around a ring of replicas in one step less than there are
// replicas.
struct RingPhase {
  enum class Links { kIpu, kGateway };
  Links links = Links::kIpu;
  uint64_t replicas = 1;
  double bytes = 0;          // that pass each link, in all steps together
  uint32_t synced_ipus = 1;  // by the sync of each step
};

struct PlanStep {
  std::variant<ComputeSet, TileExchange, StreamTransfer, RemoteTransfer, InterIpuExchange,
               RingPhase>
      work;
  uint64_t times = 1;
};

// Bytes on each of some neighbouring tiles, by category, besides the operands.
struct TileBytes {
  uint32_t tiles = arch::kTilesPerIpu;
  uint64_t vertex_code = arch::kOtherVertexCodeBytes;  // once for all instructions of a kind
  uint64_t vertex_state = arch::kWorkersPerTile * arch::kVertexStateBytes;
  uint64_t control_code = arch::kControlBytesPerStep;

  uint64_t total() const { return vertex_code + vertex_state + control_code; }
};

struct TilePlan {
  std::vector<PlanStep> steps;
  std::vector<TileBytes> bytes = {TileBytes()};

  void Add(PlanStep step) { steps.push_back(std::move(step)); }
  void Add(std::vector<PlanStep> more) {
    for (PlanStep& step : more) Add(std::move(step));
  }
};

// Price of a plan, with the control code around the instruction.
Cost PricePlan(const TilePlan& plan, const Topology& topology);

// --- Steps of even plans ---

// One AMP panel of `rows` rows (7.2 and F4): 16x16 for float16, 8x16 for float32.
TileWork AmpPanel(uint64_t rows, program::v1::DataType type);
// An element-by-element vertex (7.3): `cycles_per_vector` worker cycles for 64 bits.
PlanStep ElementwiseStep(uint64_t elements, program::v1::DataType type, double cycles_per_vector);
PlanStep ElementwiseStep(const program::TensorType& type, double cycles_per_vector);
// Each tile receives, or sends, `bytes_per_tile` (7.1, F10).
PlanStep TileExchangeStep(uint64_t bytes_per_tile);
// A reduction of `inputs` elements to `outputs` (7.5 rule 5).
std::vector<PlanStep> ReduceSteps(uint64_t inputs, uint64_t outputs, program::v1::DataType type);
// A product of [m,k] and [k,n].
std::vector<PlanStep> MatMulSteps(uint64_t m, uint64_t k, uint64_t n, program::v1::DataType type,
                                  uint64_t products = 1);

// Data that a collective moves.
struct CollectiveLoad {
  program::OpKind kind = program::v1::Instruction::kAllReduce;
  uint64_t bytes = 0;     // on each replica, the larger of what goes in and comes out
  uint64_t elements = 0;  // as above
  uint64_t members = 1;   // of each group
  uint64_t stride = 1;    // between the replica numbers of members
};
// A collective (section 4, F17) with the additions of its reduction. Within an IPU-Link domain on a
// ring; across racks in phases, the middle one over GW-Links (F11, F16).
std::vector<PlanStep> CollectiveSteps(const CollectiveLoad& load, const Topology& topology);

}  // namespace vpod::model
