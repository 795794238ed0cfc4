// Reads profile.pop: what a program needs on the tiles of its IPUs, and what its runs did. As the
// library libpva of the Poplar SDK, with the names of its documentation where it has them.
//
//   absl::StatusOr<pva::Report> report = pva::OpenReport("report/train");
//   for (const pva::Operation& operation : report->operations)
//     std::printf("%s: %lu cycles\n", operation.name.c_str(), operation.cycles.total());
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/pva/tile_runs.h"

namespace vpod::pva {

struct Target {
  std::string type, architecture;  // "IPU" or "IPU_MODEL"; "ipu2"
  double clock_hz = 0;
  uint32_t tiles_per_ipu = 0, num_ipus = 0, num_replicas = 0, ipus_per_replica = 0;
  uint64_t bytes_per_tile = 0;
};

// The parts of the lowered program, on all IPUs of a replica.
struct Graph {
  uint64_t num_compute_sets = 0, num_edges = 0, num_vars = 0, num_vertices = 0;
};

struct CycleSplit {
  uint64_t compute = 0, exchange = 0, sync = 0;
  uint64_t total() const { return compute + exchange + sync; }
};

// An instruction of an IPU.
struct Operation {
  uint32_t ipu = 0;
  std::string name;         // "convolution 'layer1.0.conv1' (backward)"
  std::string scope, op;    // "layer1.0.conv1", "convolution"
  std::string instruction;  // "convolution_input_gradient"
  std::string phase;        // "forward", "backward", "recompute", "update", or empty
  uint32_t stage = 0;
  uint64_t executions = 0;              // in a planned run, in which conditions hold
  CycleSplit cycles;                    // of one execution
  uint64_t from_host = 0, to_host = 0;  // bytes of one execution
  uint64_t from_streaming_memory = 0, to_streaming_memory = 0;  // the same
  std::optional<uint32_t> remote_buffer;  // index of the report's, of which it moves a row
  double flops = 0;                       // of one execution

  CycleSplit all_cycles() const {
    return {cycles.compute * executions, cycles.exchange * executions, cycles.sync * executions};
  }
};

// A node of the program tree. Functions are roots; what an instruction executes, is its callee.
struct Program {
  std::optional<uint32_t> parent;     // index of the report's programs
  std::optional<uint32_t> operation;  // index of its operations
  std::optional<uint32_t> callee;     // index of the report's programs: a function
  uint32_t ipu = 0;
  std::string type;  // "Function", "Repeat", "OnTileExecute", "DoExchange", "StreamCopyMid" …
  std::string name;
  uint64_t times = 1;       // one after the other, where its parent is executed once
  CycleSplit cycles;        // of all times; of steps of an operation and of operations
  uint64_t vertices = 0;    // of a compute set
  double tile_balance = 0;  // of a compute set: cycles of all tiles / (tiles × the slowest)
  TileRuns cycles_by_tile;  // of a compute set
};

// Bytes on tiles, side by side: what an operation makes, or what is always there.
struct Variable {
  uint32_t ipu = 0;
  std::string name, type;
  uint64_t bytes = 0;
  uint32_t first_tile = 0, tiles = 0;
  uint64_t bytes_per_tile = 0;
  bool always_live = false;
  std::optional<uint32_t> operation;       // that makes it
  uint32_t first_step = 0, last_step = 0;  // of liveness, unless it is always live
  std::string contents;                    // what it is for: docs/profiles.md
};

// Memory of a category on the tiles of an IPU: of each tile the most that it needs at once.
struct Memory {
  uint32_t ipu = 0;
  std::string category;  // "always live", "not always live", "vertex code" …
  TileRuns bytes_by_tile;
};

struct LivenessStep {
  uint32_t ipu = 0;
  uint32_t operation = 0;
  uint64_t not_always_live = 0;     // bytes of the variables on all tiles
  uint64_t temporary_per_tile = 0;  // what the operation receives and adds up
};

struct Stream {
  std::string name;
  uint32_t ipu = 0;
  bool to_device = true;
  uint64_t bytes = 0;  // of a replica in a run
};

// A remote buffer of a replica, in the streaming memory of its machine. Operations load and store
// its rows.
struct RemoteBuffer {
  uint32_t ipu = 0;
  std::string name;
  uint64_t rows = 0;
  uint64_t bytes = 0;    // of all rows
  bool scratch = false;  // activations or accumulators, which no later run reads
};

// An operation of an IPU in a run. All runs and replicas take the same steps.
struct Step {
  uint32_t ipu = 0;
  uint32_t operation = 0;
  uint64_t from = 0, waiting = 0, to = 0;  // cycles; it waits for other IPUs first
};

// A run, with the cycles that the device counted. They are those of the steps unless the program
// left out what depends on a condition, as an update whose gradients overflow is, or collectives
// went between IPU-Link domains, which take longer.
struct Run {
  uint64_t cycles = 0;
};

struct Report {
  std::string path;
  std::map<std::string, std::string> meta, options;
  Target target;
  Graph graph;
  std::vector<Operation> operations;
  std::vector<Program> programs;
  std::vector<Variable> variables;
  std::vector<Memory> memory;
  std::vector<std::vector<LivenessStep>> liveness;  // [ipu]
  std::vector<Stream> streams;
  std::vector<RemoteBuffer> remote_buffers;
  std::vector<std::vector<Step>> steps;  // [ipu], in their order; none without execution profile
  std::vector<Run> runs;
  // Set if the profile could not be written any more: runs from this one on are not recorded.
  std::optional<uint64_t> first_run_lost;

  std::string program_name() const;
  // Bytes of each tile of an IPU, of all categories or of one.
  std::vector<uint64_t> BytesByTile(uint32_t ipu, absl::string_view category = "") const;
  // Cycles of a run by the steps: of the slowest IPU.
  uint64_t planned_cycles() const;
};

// `path`: a profile, or the directory that holds it. NotFound; PermissionDenied; InvalidArgument
// for a file that is not a profile or does not hold together; FailedPrecondition: a process was
// killed while it added a run, and the user may not undo its unfinished write. The message names
// the file.
absl::StatusOr<Report> OpenReport(const std::string& path);

}  // namespace vpod::pva
