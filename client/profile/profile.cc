#include "client/profile/profile.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/profile/memory_tables.h"
#include "client/profile/operations.h"
#include "client/profile/program_tree.h"
#include "client/profile/recording.h"
#include "client/pva/database.h"
#include "client/pva/schema.h"
#include "device/arch/hardware.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "device/base/unfinished_file.h"
#include "device/base/version.h"
#include "device/model/tile_memory.h"
#include "device/model/timeline.h"

namespace vpod::profile {
namespace {

using Clock = std::chrono::steady_clock;

// A write takes about 60 us, a tenth of a step of the MNIST network.
constexpr std::chrono::milliseconds kLongestWait(100);

using pva::Database;

// A run with more steps is recorded without them: the file would have gigabytes.
constexpr size_t kMostSteps = size_t{1} << 22;

// A program's folder: what a path cannot have in one part is replaced.
std::string FolderOf(const std::string& program, std::set<std::string>& taken) {
  std::string folder = program;
  std::replace(folder.begin(), folder.end(), '/', '_');
  // Also if it is empty.
  if (folder.find_first_not_of('.') == std::string::npos) folder = "program" + folder;
  while (!taken.insert(folder).second) folder += "_";
  return folder;
}

// A number, or blanks in its place: the row can be changed on a disk that is full.
std::string FirstRunLost(std::optional<uint32_t> run) {
  return run ? absl::StrFormat("%10d", *run) : std::string(10, ' ');
}

void WriteMeta(const program::Executable& executable, const std::string& program,
               const ProfileOptions& options, Database& database) {
  pva::Statement meta = database.Prepare("INSERT INTO meta VALUES(?,?)");
  meta.Bind("format").Bind(absl::StrCat(pva::kProfileFormat)).Run();
  meta.Bind("program").Bind(program).Run();
  meta.Bind("version").Bind(base::kVersion).Run();
  meta.Bind("executable").Bind(executable.hash()).Run();
  meta.Bind("session").Bind(options.session).Run();
  meta.Bind("timestamp").Bind(absl::StrCat(std::time(nullptr))).Run();
  meta.Bind(pva::kFirstRunLost).Bind(FirstRunLost(std::nullopt)).Run();
  meta.Bind(pva::kWeightsFromHost).Bind(absl::StrCat(options.weights_from_host.value())).Run();
  meta.Bind(pva::kWeightsToHost).Bind(absl::StrCat(options.weights_to_host.value())).Run();
  if (const auto options_of_front = executable.memory_options(); !options_of_front.empty())
    meta.Bind(pva::kMemoryOptions).Bind(absl::StrJoin(options_of_front, "\n")).Run();
  pva::Statement option = database.Prepare("INSERT INTO option VALUES(?,?)");
  for (const auto& [key, value] : options.engine_options) option.Bind(key).Bind(value).Run();
  pva::Statement target = database.Prepare("INSERT INTO target VALUES(?,?,?,?,?,?,?,?)");
  target.Bind(options.is_model ? "IPU_MODEL" : "IPU").Bind("ipu2");
  target.Bind(options.topology.clock_hz).Bind(arch::kTilesPerIpu);
  target.Bind(options.topology.num_replicas * executable.ipus_per_replica());
  target.Bind(options.topology.num_replicas).Bind(executable.ipus_per_replica());
  target.Bind(arch::kTileMemory.value()).Run();
}

void WriteStreams(const program::Executable& executable, uint32_t program, Database& database) {
  pva::Statement row = database.Prepare("INSERT INTO stream VALUES(?,?,?,?)");
  for (uint32_t number : executable.streams(program)) {
    const auto& stream = executable.proto().streams(static_cast<int>(number));
    row.Bind(stream.name()).Bind(stream.ipu());
    row.Bind(stream.to_device() ? "toDevice" : "fromDevice");
    row.Bind(program::TypeOf(stream).bytes() * program::TransfersOf(executable, program, number))
        .Run();
  }
}

void WriteRemoteBuffers(const program::Executable& executable, Database& database) {
  pva::Statement row = database.Prepare("INSERT INTO remote_buffer VALUES(?,?,?,?,?,?)");
  uint32_t number = 0;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    for (const auto& buffer : executable.proto().ipus(static_cast<int>(ipu)).remote_buffers()) {
      row.Bind(number++).Bind(ipu).Bind(buffer.name()).Bind(buffer.rows());
      row.Bind(program::TypeOf(buffer).bytes() * buffer.rows()).Bind(buffer.scratch() ? 1 : 0);
      row.Run();
    }
  }
}

// The steps of one run, unless there are too many.
void WriteSteps(const program::Executable& executable, uint32_t program,
                const model::Topology& topology, Database& database) {
  const ProgramOperations operations(executable.proto(), program);
  size_t steps = 0;
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    const auto& text = executable.proto().ipus(static_cast<int>(ipu));
    program::ForEachInstruction(
        text, program::PlannedExecutions(text, executable.EntryOf(program, ipu)),
        [&](const auto&, uint64_t times) {
          steps = times > kMostSteps ? kMostSteps + 1 : std::min(kMostSteps + 1, steps + times);
        });
  }
  if (steps > kMostSteps) {
    database.Execute("INSERT OR REPLACE INTO meta VALUES('stepsLeftOut', 'true')");
    return;
  }
  pva::Statement row = database.Prepare("INSERT INTO step VALUES(?,?,?,?,?,?)");
  std::vector<uint32_t> positions(executable.ipus_per_replica());
  model::TimelineOf(executable.proto(), program, topology, [&](const model::TimelineEvent& event) {
    row.Bind(event.ipu).Bind(positions[event.ipu]++);
    row.Bind(*operations.NumberOf(event.ipu, event.place));
    row.Bind(event.begin.value()).Bind(event.waiting.value()).Bind(event.end.value()).Run();
  });
}

absl::Status WriteProfile(const program::Executable& executable, uint32_t program,
                          const ProfileOptions& options,
                          const std::vector<model::IpuMemory>& memory, const std::string& path) {
  VPOD_ASSIGN_OR_RETURN(const auto database, Database::Open(path, Database::Mode::kCreate));
  // The file gets its name only when it is whole, so that nothing of it needs a journal.
  database->Execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN");
  database->Execute(pva::kSchema);
  const auto& entry = executable.proto().programs(static_cast<int>(program));
  WriteMeta(executable, entry.name(), options, *database);
  const ProgramOperations operations(executable.proto(), program);
  WriteProgramTree(executable, operations, options.topology, *database);
  WriteMemoryTables(executable, program, operations, options.topology, memory, *database);
  WriteStreams(executable, program, *database);
  WriteRemoteBuffers(executable, *database);
  database->Execute("COMMIT");
  return database->status();
}

absl::Status MakeDirectory(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  const std::string message =
      absl::StrCat("cannot make the directory ", folder.string(), ": ", error.message());
  return error == std::errc::no_space_on_device ? absl::ResourceExhaustedError(message)
                                                : absl::UnavailableError(message);
}

// Puts a profile in the place of the one that is there, whole or not at all.
absl::Status ReplaceProfile(const program::Executable& executable, uint32_t program,
                            const ProfileOptions& options,
                            const std::vector<model::IpuMemory>& memory, const std::string& path) {
  base::RemoveLeftovers(path);
  absl::StatusOr<base::UnfinishedFile> file = base::UnfinishedFile::Create(path, options.session);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat("cannot write ", file.status().message()));
  }
  absl::Status written = WriteProfile(executable, program, options, memory, file->name());
  if (written.ok()) {
    // A process that was killed while it added a run left it: it is not for the new file.
    std::error_code error;
    std::filesystem::remove(path + "-journal", error);
    written = file->Finish();
    if (written.ok()) return written;
  }
  return absl::Status(written.code(),
                      absl::StrCat("cannot write ",
                                   absl::StrReplaceAll(written.message(), {{file->name(), path}})));
}

}  // namespace

// The runs of a program.
struct ProgramRuns {
  std::string path;  // of the profile
  uint32_t written = 0;
  std::vector<base::Cycles> waiting;     // to be written with those that follow
  std::unique_ptr<Recording> recording;  // open from the first run to the last one to be recorded

  size_t count() const { return written + waiting.size(); }
};

Profiler::Profiler(std::shared_ptr<const program::Executable> executable, ProfileOptions options)
    : executable_(std::move(executable)), options_(std::move(options)), process_(getpid()) {}

Profiler::~Profiler() { Finish().IgnoreError(); }

const std::string& Profiler::PathOf(uint32_t program) const { return runs_[program].path; }

absl::StatusOr<std::unique_ptr<Profiler>> Profiler::Create(
    std::shared_ptr<const program::Executable> executable, const ProfileOptions& options) {
  namespace fs = std::filesystem;
  ProfileOptions named = options;
  named.session = base::RandomId();
  std::unique_ptr<Profiler> profiler(new Profiler(std::move(executable), std::move(named)));
  const program::Executable& text = *profiler->executable_;
  std::set<std::string> folders;
  std::vector<model::IpuMemory> memory;
  for (uint32_t ipu = 0; ipu < text.ipus_per_replica(); ++ipu)
    memory.push_back(model::PlanMemory(text.proto(), ipu, options.topology));
  for (int program = 0; program < text.proto().programs_size(); ++program) {
    const fs::path folder =
        fs::path(options.directory) / FolderOf(text.proto().programs(program).name(), folders);
    const std::string path = (folder / pva::kProfileFile).string();
    VPOD_RETURN_IF_ERROR(MakeDirectory(folder));
    VPOD_RETURN_IF_ERROR(
        ReplaceProfile(text, static_cast<uint32_t>(program), profiler->options_, memory, path));
    profiler->runs_.push_back({.path = path});
  }
  return profiler;
}

absl::Status Profiler::AddRun(uint32_t program, base::Cycles cycles) {
  ProgramRuns& runs = runs_[program];
  if (stopped_ || !options_.execution || runs.count() >= options_.runs) return absl::OkStatus();
  runs.waiting.push_back(cycles);
  const bool last = runs.count() == options_.runs;
  if (!last && Clock::now() < next_write_) return absl::OkStatus();
  VPOD_RETURN_IF_ERROR(WriteWaiting(/*are_last=*/false));
  if (last) runs.recording.reset();
  return absl::OkStatus();
}

absl::Status Profiler::Finish() { return WriteWaiting(/*are_last=*/true); }

absl::Status Profiler::WriteWaiting(bool are_last) {
  // The child of a fork would write beside its parent, over the same handles.
  if (stopped_ || getpid() != process_) return absl::OkStatus();
  absl::Status error;
  for (uint32_t program = 0; program < runs_.size(); ++program) error.Update(Write(program));
  if (error.ok()) {
    next_write_ = Clock::now() + kLongestWait;
    return error;
  }
  stopped_ = true;
  for (ProgramRuns& runs : runs_) {
    runs.recording.reset();  // which takes back what was not committed
    if (!are_last || !runs.waiting.empty()) NoteLostRuns(runs);
  }
  return absl::Status(error.code(),
                      absl::StrCat("no more runs are recorded in profiles: ", error.message()));
}

absl::Status Profiler::Write(uint32_t program) {
  ProgramRuns& runs = runs_[program];
  if (runs.waiting.empty()) return absl::OkStatus();
  // A file that was removed or replaced is opened again, which says so.
  if (runs.recording != nullptr && runs.recording->HasMoved()) runs.recording.reset();
  if (runs.recording == nullptr) {
    VPOD_ASSIGN_OR_RETURN(runs.recording, Recording::Open(runs.path, options_.session));
  }
  std::function<void(Database&)> steps;
  if (runs.written == 0) {
    steps = [&](Database& database) {
      WriteSteps(*executable_, program, options_.topology, database);
    };
  }
  VPOD_RETURN_IF_ERROR(runs.recording->AddRuns(runs.written, runs.waiting, steps));
  runs.written = static_cast<uint32_t>(runs.count());
  runs.waiting.clear();
  return absl::OkStatus();
}

// As well as it can be done: the file may be what cannot be written.
void Profiler::NoteLostRuns(const ProgramRuns& runs) const {
  if (runs.written >= options_.runs) return;
  const auto database = Database::Open(runs.path, Database::Mode::kWrite);
  if (!database.ok()) return;
  // Neither the journal nor the row, whose size stays, takes space.
  (*database)->Execute("PRAGMA journal_mode = MEMORY");
  (*database)
      ->Prepare(
          "UPDATE meta SET value = ? WHERE key = ? AND EXISTS"
          "(SELECT 1 FROM meta WHERE key = 'session' AND value = ?)")
      .Bind(FirstRunLost(runs.written))
      .Bind(pva::kFirstRunLost)
      .Bind(options_.session)
      .Run();
}

}  // namespace vpod::profile
