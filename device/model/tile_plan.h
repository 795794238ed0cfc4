// The work of an instruction on the tiles of its IPU: steps, one after the other, and bytes. Each
// op has a function that plans it (op_plans.h); one function prices all plans. The plans of today
// are even: all tiles that are needed do the same.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "device/arch/hardware.h"
#include "device/model/cost.h"

namespace vpod::model {

// Program of a tile's workers.
enum class Vertex { kElementwise, kReduction, kConvolution };

// The work of each of some neighbouring tiles in a compute set.
struct TileWork {
  uint32_t tiles = 0;
  Vertex vertex = Vertex::kElementwise;
  uint64_t supervisor_cycles = 0;                  // of a call of the vertex
  uint64_t worker_cycles = 0;                      // of a call, by the slowest of the six workers
  uint64_t calls = 1;                              // one after the other
  uint64_t state_bytes = arch::kVertexStateBytes;  // of the tile's vertex, which has all workers
};

// All tiles compute; the slowest decides.
struct ComputeSet {
  std::vector<TileWork> classes;  // other tiles are idle
};

// The bytes that each of some neighbouring tiles receives, and in how many pieces, or sends if that
// is more.
struct TileTraffic {
  uint32_t tiles = 0;
  uint64_t bytes = 0;
  uint64_t fragments = 1;
  uint64_t sent_bytes = 0;
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
  uint32_t sharing_ipus = 1;  // that use the machine's memory at the same time
};

// A transfer between an IPU and the streaming memory of its machine, in which some tiles take part.
struct RemoteTransfer {
  bool store = false;  // out of the IPU
  uint64_t bytes = 0;
  uint32_t tiles = arch::kTilesPerIpu;
  uint32_t sharing_ipus = 1;
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
  uint32_t ipu = 0;  // whose part is planned
};

// A phase of a collective: data go around a ring of replicas in one step less than there are
// replicas.
struct RingPhase {
  enum class Links { kIpu, kGateway };
  Links links = Links::kIpu;
  uint64_t replicas = 1;
  uint64_t stride = 1;       // replicas from one to the next
  double bytes = 0;          // that pass each link, in all steps together
  uint32_t synced_ipus = 1;  // by the sync of each step
};

struct PlanStep {
  std::variant<ComputeSet, TileExchange, StreamTransfer, RemoteTransfer, InterIpuExchange,
               RingPhase>
      work;
  uint64_t times = 1;
};

// An exchange on the chip belongs to the compute set beside it.
inline bool IsProgramStep(const PlanStep& step) {
  return !std::holds_alternative<TileExchange>(step.work);
}

struct TilePlan {
  std::vector<PlanStep> steps;
  // Tiles on which the first result lies; 0 if the plan does not decide it.
  uint32_t result_tiles = 0;
  // Bytes of partial results on the fullest tile, besides what it receives and the results.
  uint64_t partial_bytes = 0;

  void Add(PlanStep step) { steps.push_back(std::move(step)); }
  void Add(std::vector<PlanStep> more) {
    for (PlanStep& step : more) Add(std::move(step));
  }
};

// Price of a step, all times that it is done.
Cost PriceOfStep(const PlanStep& step, const Topology& topology);
// Price of a plan, with the control code around the instruction.
Cost PricePlan(const TilePlan& plan, const Topology& topology);

// --- Steps of even plans ---

// An element-by-element vertex (7.3): `cycles_per_vector` worker cycles for 64 bits. The elements
// lie on as many tiles at most.
PlanStep ElementwiseStep(uint64_t elements, program::v1::DataType type, double cycles_per_vector,
                         uint32_t tiles = arch::kTilesPerIpu);
PlanStep ElementwiseStep(const program::TensorType& type, double cycles_per_vector);
// Each tile receives, or sends, `bytes_per_tile` (7.1, F10).
PlanStep TileExchangeStep(uint64_t bytes_per_tile, uint64_t fragments = 1);
PlanStep TileExchangeStep(const TileTraffic& each_tile);
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
