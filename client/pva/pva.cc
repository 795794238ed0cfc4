#include "client/pva/pva.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/pva/database.h"
#include "client/pva/profile_file.h"
#include "client/pva/schema.h"
#include "device/base/status.h"

namespace vpod::pva {
namespace {

constexpr uint32_t kMostIpus = 64, kMostTiles = 1 << 16;

class Reader {
 public:
  Reader(Database& database, Report& report) : database_(database), report_(report) {}

  absl::Status Read() {
    CheckFormat();
    database_.ExpectSchema(kSchema);
    CheckRows();
    VPOD_RETURN_IF_ERROR(database_.status());
    VPOD_RETURN_IF_ERROR(ReadMeta());
    ReadTarget();
    VPOD_RETURN_IF_ERROR(database_.status());
    report_.liveness.resize(report_.target.ipus_per_replica);
    report_.steps.resize(report_.target.ipus_per_replica);
    ReadRemoteBuffers();
    ReadOperations();
    ReadPrograms();
    ReadVariables();
    ReadMemory();
    ReadLiveness();
    ReadStreams();
    ReadSteps();
    Statement runs = database_.Prepare("SELECT cycles FROM run ORDER BY id");
    while (runs.Next()) report_.runs.push_back({runs.Count()});
    return database_.status();
  }

 private:
  // Before the other tables, which are those of the format. Only in a table of this text, since
  // what a file calls `meta` may be a view that never ends.
  void CheckFormat() {
    Statement is_table = database_.Prepare(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta' AND "
        "sql = 'CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT)'");
    if (!is_table.Next()) return;
    Statement format = database_.Prepare("SELECT value FROM meta WHERE key = 'format'");
    const std::string found = format.Next() ? format.Text() : "";
    if (found == absl::StrCat(kProfileFormat)) return;
    database_.FailRow(
        absl::StrCat("its format is '", found, "', and this program reads ", kProfileFormat));
  }

  void CheckRows() {
    for (const char* count : {"SELECT count(*) FROM meta", "SELECT count(*) FROM option",
                              "SELECT count(*) FROM operation", "SELECT count(*) FROM program",
                              "SELECT count(*) FROM variable", "SELECT count(*) FROM memory",
                              "SELECT count(*) FROM liveness_step", "SELECT count(*) FROM stream",
                              "SELECT count(*) FROM remote_buffer", "SELECT count(*) FROM step",
                              "SELECT count(*) FROM run"}) {
      Statement rows = database_.Prepare(count);
      if (rows.Next() && rows.Integer() > kMostRows) database_.FailRow("a table has too many rows");
    }
  }

  absl::Status ReadMeta() {
    Statement meta = database_.Prepare("SELECT key, value FROM meta");
    while (meta.Next()) {
      std::string key = meta.Text();
      report_.meta[std::move(key)] = meta.Text();
    }
    VPOD_RETURN_IF_ERROR(database_.status());
    uint64_t lost = 0;
    if (const auto run = report_.meta.find(kFirstRunLost);
        run != report_.meta.end() && absl::SimpleAtoi(run->second, &lost))
      report_.first_run_lost = lost;
    Statement option = database_.Prepare("SELECT key, value FROM option");
    while (option.Next()) {
      std::string key = option.Text();
      report_.options[std::move(key)] = option.Text();
    }
    return database_.status();
  }

  void ReadTarget() {
    Statement row = database_.Prepare(
        "SELECT type, architecture, clockFrequency, tilesPerIpu, numIPUs, numReplicas, "
        "ipusPerReplica, bytesPerTile FROM target");
    Target& target = report_.target;
    if (!row.Next()) return database_.FailRow("there is no target");
    target.type = row.Text();
    target.architecture = row.Text();
    target.clock_hz = row.Real();
    target.tiles_per_ipu = row.Id();
    target.num_ipus = row.Id();
    target.num_replicas = row.Id();
    target.ipus_per_replica = row.Id();
    target.bytes_per_tile = row.Count();
    const auto check = [&](const char* name, uint32_t value, uint32_t most) {
      if (value > 0 && value <= most) return;
      database_.FailRow(absl::StrCat("target: ", name, " is ", value, ", must be 1 to ", most));
    };
    check("ipusPerReplica", target.ipus_per_replica, kMostIpus);
    check("tilesPerIpu", target.tiles_per_ipu, kMostTiles);
    if (!(target.clock_hz > 0 && std::isfinite(target.clock_hz)))
      database_.FailRow("target: clockFrequency must be above 0");
    Statement graph =
        database_.Prepare("SELECT numComputeSets, numEdges, numVars, numVertices FROM graph");
    if (!graph.Next()) return database_.FailRow("there is no graph");
    report_.graph.num_compute_sets = graph.Count();
    report_.graph.num_edges = graph.Count();
    report_.graph.num_vars = graph.Count();
    report_.graph.num_vertices = graph.Count();
  }

  uint32_t Ipu(Statement& row) {
    const uint32_t ipu = row.Id();
    if (ipu < report_.target.ipus_per_replica) return ipu;
    database_.FailRow(absl::StrCat("IPU ", ipu, " is beyond the replica"));
    return 0;
  }
  CycleSplit Cycles(Statement& row) {
    CycleSplit cycles;
    cycles.compute = row.Count();
    cycles.exchange = row.Count();
    cycles.sync = row.Count();
    return cycles;
  }
  uint32_t Below(uint32_t id, size_t count, absl::string_view what) {
    if (id < count) return id;
    database_.FailRow(absl::StrCat(what, " ", id, " does not exist"));
    return 0;
  }
  std::optional<uint32_t> Optional(Statement& row) {
    if (!row.IsNull()) return row.Id();
    row.Integer();
    return std::nullopt;
  }
  std::optional<uint32_t> OperationOrNone(Statement& row) {
    std::optional<uint32_t> id = Optional(row);
    if (id) *id = Below(*id, report_.operations.size(), "operation");
    return id;
  }
  // Rows are numbered from 0 in their order.
  void CheckId(Statement& row, size_t expected) {
    if (row.Count() != expected) database_.FailRow("rows are missing");
  }

  void ReadOperations() {
    Statement row = database_.Prepare(
        "SELECT id, ipu, name, scope, op, instruction, phase, stage, executions, compute, "
        "exchange, sync, fromHost, toHost, fromStreamingMemory, toStreamingMemory, "
        "remoteBuffer, flops FROM operation ORDER BY id");
    while (row.Next()) {
      CheckId(row, report_.operations.size());
      Operation& operation = report_.operations.emplace_back();
      operation.ipu = Ipu(row);
      operation.name = row.Text();
      operation.scope = row.Text();
      operation.op = row.Text();
      operation.instruction = row.Text();
      operation.phase = row.Text();
      operation.stage = row.Id();
      operation.executions = row.Count();
      operation.cycles = Cycles(row);
      operation.from_host = row.Count();
      operation.to_host = row.Count();
      operation.from_streaming_memory = row.Count();
      operation.to_streaming_memory = row.Count();
      operation.remote_buffer = Optional(row);
      if (operation.remote_buffer) {
        operation.remote_buffer =
            Below(*operation.remote_buffer, report_.remote_buffers.size(), "remote buffer");
      }
      operation.flops = row.Real();
    }
  }

  void ReadPrograms() {
    Statement row = database_.Prepare(
        "SELECT id, parent, ipu, type, name, operation, callee, times, compute, exchange, sync, "
        "vertices, tileBalance, cyclesByTile FROM program ORDER BY id");
    while (row.Next()) {
      const size_t number = report_.programs.size();
      CheckId(row, number);
      Program program;
      program.parent = Optional(row);
      program.ipu = Ipu(row);
      program.type = row.Text();
      program.name = row.Text();
      program.operation = OperationOrNone(row);
      program.callee = Optional(row);
      // Parents and callees come first, and callees are functions: no walk is endless.
      if (program.parent) program.parent = Below(*program.parent, number, "program");
      if (program.callee) CheckCallee(*program.callee, program.ipu);
      if (!database_.status().ok()) return;
      program.times = row.Count();
      program.cycles = Cycles(row);
      program.vertices = row.Count();
      program.tile_balance = row.Real();
      program.cycles_by_tile = Unpack(row.Blob());
      report_.programs.push_back(std::move(program));
    }
  }

  void CheckCallee(uint32_t callee, uint32_t ipu) {
    const auto& programs = report_.programs;
    if (callee < programs.size() && !programs[callee].parent && programs[callee].ipu == ipu) return;
    database_.FailRow(absl::StrCat("program ", callee, " is not a function of IPU ", ipu));
  }

  void ReadVariables() {
    Statement row = database_.Prepare(
        "SELECT ipu, name, type, bytes, firstTile, tiles, bytesPerTile, alwaysLive, operation, "
        "firstStep, lastStep, contents FROM variable ORDER BY id");
    while (row.Next()) {
      Variable& variable = report_.variables.emplace_back();
      variable.ipu = Ipu(row);
      variable.name = row.Text();
      variable.type = row.Text();
      variable.bytes = row.Count();
      variable.first_tile = Below(row.Id(), report_.target.tiles_per_ipu, "tile");
      variable.tiles = row.Id();
      if (variable.tiles > report_.target.tiles_per_ipu)
        database_.FailRow("a variable has more tiles than an IPU");
      variable.bytes_per_tile = row.Count();
      variable.always_live = row.Integer() != 0;
      variable.operation = OperationOrNone(row);
      variable.first_step = row.Id();
      variable.last_step = row.Id();
      variable.contents = row.Text();
    }
  }

  void ReadMemory() {
    Statement row = database_.Prepare("SELECT ipu, category, bytesByTile FROM memory");
    while (row.Next()) {
      Memory& memory = report_.memory.emplace_back();
      memory.ipu = Ipu(row);
      memory.category = row.Text();
      if (!categories_.insert({memory.ipu, memory.category}).second) {
        database_.FailRow(
            absl::StrCat("IPU ", memory.ipu, " has category '", memory.category, "' twice"));
        return;
      }
      memory.bytes_by_tile = Unpack(row.Blob());
      uint64_t tiles = 0;
      for (const TileRun& run : memory.bytes_by_tile) tiles += run.tiles;
      if (tiles != report_.target.tiles_per_ipu)
        database_.FailRow(absl::StrCat("category '", memory.category, "' has ", tiles, " tiles"));
    }
  }

  void ReadLiveness() {
    Statement row = database_.Prepare(
        "SELECT ipu, operation, notAlwaysLive, temporaryPerTile FROM liveness_step "
        "ORDER BY ipu, step");
    while (row.Next()) {
      LivenessStep step;
      step.ipu = Ipu(row);
      step.operation = Below(row.Id(), report_.operations.size(), "operation");
      step.not_always_live = row.Count();
      step.temporary_per_tile = row.Count();
      report_.liveness[step.ipu].push_back(step);
    }
  }

  void ReadStreams() {
    Statement row = database_.Prepare("SELECT name, ipu, direction, bytes FROM stream");
    while (row.Next()) {
      Stream& stream = report_.streams.emplace_back();
      stream.name = row.Text();
      stream.ipu = Ipu(row);
      stream.to_device = row.Text() == "toDevice";
      stream.bytes = row.Count();
    }
  }

  void ReadRemoteBuffers() {
    Statement row = database_.Prepare(
        "SELECT id, ipu, name, rows, bytes, scratch FROM remote_buffer ORDER BY id");
    while (row.Next()) {
      CheckId(row, report_.remote_buffers.size());
      RemoteBuffer& buffer = report_.remote_buffers.emplace_back();
      buffer.ipu = Ipu(row);
      buffer.name = row.Text();
      buffer.rows = row.Count();
      buffer.bytes = row.Count();
      buffer.scratch = row.Integer() != 0;
    }
  }

  void ReadSteps() {
    Statement row = database_.Prepare(
        "SELECT ipu, operation, cyclesFrom, waiting, cyclesTo FROM step ORDER BY ipu, position");
    while (row.Next()) {
      Step step;
      step.ipu = Ipu(row);
      step.operation = Below(row.Id(), report_.operations.size(), "operation");
      step.from = row.Count();
      step.waiting = row.Count();
      step.to = row.Count();
      if (step.to < step.from || step.waiting > step.to - step.from)
        database_.FailRow("a step ends before it begins");
      report_.steps[step.ipu].push_back(step);
    }
    if (database_.status().ok()) CheckExecutions();  // steps name operations that there are
  }

  // Views count an operation by its executions or by its steps.
  void CheckExecutions() {
    std::vector<uint64_t> executions(report_.operations.size());
    bool is_recorded = false;
    for (const std::vector<Step>& steps : report_.steps) {
      for (const Step& step : steps) ++executions[step.operation];
      is_recorded |= !steps.empty();
    }
    for (size_t i = 0; is_recorded && i < executions.size(); ++i) {
      const Operation& operation = report_.operations[i];
      if (executions[i] == operation.executions) continue;
      return database_.FailRow(absl::StrCat("operation ", i, " has ", executions[i],
                                            " steps, but is executed ", operation.executions,
                                            " times"));
    }
  }

  Database& database_;
  Report& report_;
  std::set<std::pair<uint32_t, std::string>> categories_;  // of memory, by IPU
};

}  // namespace

std::string Report::program_name() const {
  const auto name = meta.find("program");
  return name == meta.end() ? "" : name->second;
}

std::vector<uint64_t> Report::BytesByTile(uint32_t ipu, absl::string_view category) const {
  std::vector<uint64_t> bytes(target.tiles_per_ipu);
  for (const Memory& of_category : memory) {
    if (of_category.ipu != ipu || (!category.empty() && of_category.category != category)) continue;
    size_t tile = 0;
    for (const TileRun& run : of_category.bytes_by_tile) {
      for (uint32_t i = 0; i < run.tiles && tile < bytes.size(); ++i) bytes[tile++] += run.value;
    }
  }
  return bytes;
}

uint64_t Report::planned_cycles() const {
  uint64_t last = 0;
  for (const std::vector<Step>& of_ipu : steps) {
    if (!of_ipu.empty()) last = std::max(last, of_ipu.back().to);
  }
  return last;
}

absl::StatusOr<Report> OpenReport(const std::string& path) {
  Report report;
  VPOD_ASSIGN_OR_RETURN(report.path, FindProfile(path));
  VPOD_ASSIGN_OR_RETURN(const auto database, OpenProfile(report.path));
  VPOD_RETURN_IF_ERROR(Reader(*database, report).Read());
  return report;
}

}  // namespace vpod::pva
