// Damaged profiles are refused, or shown: nothing crashes, nothing goes on for ever.
//   VPOD_FUZZ_PROFILES  their number (5000)
//   VPOD_FUZZ_SEED      other mutations (2026); `tests/security/fuzz --profiles` takes a random one
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/profile/profile.h"
#include "client/pva/database.h"
#include "device/base/file.h"
#include "device/model/timeline.h"
#include "tests/support/fuzz.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using testing::NumberFrom;

constexpr uint32_t kTiles = 8;

// Leaves few tiles and pages in a profile: showing it takes less than a millisecond, and most of
// its bytes matter.
void Shrink(const std::string& path) {
  const auto database = pva::Database::Open(path, pva::Database::Mode::kWrite);
  ASSERT_TRUE(database.ok()) << database.status();
  std::vector<std::pair<int64_t, std::string>> memory;
  {
    pva::Statement row = (*database)->Prepare("SELECT rowid, bytesByTile FROM memory");
    while (row.Next()) {
      const int64_t id = row.Integer();
      const uint64_t bytes = pva::Unpack(row.Blob()).at(0).value;
      memory.emplace_back(id, pva::Pack({{kTiles - 1, bytes}, {1, bytes + 1}}));
    }
  }
  pva::Statement update = (*database)->Prepare("UPDATE memory SET bytesByTile = ? WHERE rowid = ?");
  for (const auto& [id, packed] : memory) update.BindBlob(packed).Bind(id).Run();
  (*database)->Execute(absl::StrCat("UPDATE target SET tilesPerIpu = ", kTiles).c_str());
  (*database)->Execute(absl::StrCat("UPDATE variable SET firstTile = firstTile % ", kTiles,
                                    ", tiles = min(tiles, ", kTiles, ")")
                           .c_str());
  (*database)->Execute("PRAGMA page_size = 512; VACUUM");
  EXPECT_TRUE((*database)->status().ok()) << (*database)->status();
}

// The profile of a pipeline of two small products, with a run.
std::string SmallProfile(const std::string& directory) {
  Graph g;
  Tensor x = g.Input("x", {FLOAT32, {4, 8}});
  for (uint32_t stage : {0, 1}) {
    g.SetIpu(stage);
    g.SetStage(stage);
    x = g.MatMul(
        x, g.Variable(absl::StrCat("w", stage), {FLOAT32, {8, 8}}, graph::InitialValue::Filled(1)));
  }
  const Tensor loss = g.Mean(x);
  compiler::CompileOptions options{.ipus_per_replica = 2, .schedule = compiler::Schedule::kGrouped};
  options.programs = {
      {.name = "train", .accumulation = 3, .loss = loss, .optimizer = compiler::SgdOptions{}}};
  const auto compiled = compiler::Compile(g, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  profile::ProfileOptions profile;
  profile.directory = directory;
  profile.execution = true;
  profile.topology.ipus_per_replica = 2;
  const auto profiler = profile::Profiler::Create(compiled->executable, profile);
  EXPECT_TRUE(profiler.ok()) << profiler.status();
  EXPECT_TRUE((*profiler)->AddRun(0, base::Cycles(1000)).ok());
  Shrink((*profiler)->PathOf(0));
  return (*profiler)->PathOf(0);
}

// Whether a terminal takes a byte, or the two of a control of C1, for more than a character.
bool IsControl(absl::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte == 0xc2 && at + 1 < text.size()) return (text[at + 1] & 0xe0) == 0x80;
  return (byte < 0x20 && byte != '\n') || byte == 0x7f;
}

// There is something, and a terminal only shows it.
void ExpectShown(absl::string_view text) {
  EXPECT_FALSE(text.empty());
  for (size_t at = 0; at < text.size(); ++at) {
    if (IsControl(text, at))
      FAIL() << absl::CHexEscape(text.substr(at - std::min<size_t>(at, 40), 80));
  }
}

// Shows all there is; whether the profile was accepted.
bool Show(const std::string& path) {
  const auto report = pva::OpenReport(path);
  if (!report.ok()) {
    EXPECT_NE(report.status().message().find(path), std::string::npos) << report.status();
    return false;
  }
  std::vector<Document> documents;
  for (const auto view : {Summary, Insights, Memory, Liveness, ProgramTree, Operations, Trace}) {
    documents.push_back(view(*report));
    ExpectShown(Text(documents.back()));
    ExpectShown(Json(documents.back()));
  }
  documents.push_back(Diff(*report, *report));
  ExpectShown(Text(documents.back()));
  ExpectShown(Html(HeadOf(*report), documents));
  return true;
}

class HostileProfileTest : public ::testing::Test {
 protected:
  HostileProfileTest()
      : directory_(absl::StrCat(::testing::TempDir(), "/hostile.", getpid())),
        sound_(base::ReadFile(SmallProfile(directory_))) {}
  ~HostileProfileTest() override { std::filesystem::remove_all(directory_); }

  std::string Write(const std::string& bytes) const {
    const std::string path = directory_ + "/mutated.pop";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }

  const std::string directory_, sound_;
};

TEST_F(HostileProfileTest, DamagedBytes) {
  ASSERT_TRUE(Show(Write(sound_)));
  const uint64_t count = NumberFrom("VPOD_FUZZ_PROFILES", 5000),
                 seed = NumberFrom("VPOD_FUZZ_SEED", 2026);
  std::fprintf(stderr, "VPOD_FUZZ_SEED=%lu VPOD_FUZZ_PROFILES=%lu\n", seed, count);
  std::mt19937_64 random(seed);
  uint64_t shown = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::string bytes = sound_;
    for (uint64_t changes = random() % 8 + 1; changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 16 == 0) bytes.resize(random() % bytes.size());
    shown += Show(Write(bytes)) ? 1 : 0;
    if (HasFailure()) {
      base::ReplaceFile(::testing::TempDir() + "/finding.pop", bytes, 0644).IgnoreError();
      FAIL() << "mutation " << i;
    }
  }
  EXPECT_GT(shown, 0u);
  EXPECT_LT(shown, count);
}

TEST_F(HostileProfileTest, StepsThatAreMissing) {
  const std::string path = Write(sound_);
  {
    const auto database = pva::Database::Open(path, pva::Database::Mode::kWrite);
    ASSERT_TRUE(database.ok()) << database.status();
    (*database)->Execute("DELETE FROM step WHERE rowid > 5");
  }
  EXPECT_THAT(std::string(pva::OpenReport(path).status().message()),
              ::testing::HasSubstr(" steps, but is executed "));
}

// Any value in any column of a sound file.
TEST_F(HostileProfileTest, DamagedValues) {
  const char* const columns[][2] = {{"target", "clockFrequency"},
                                    {"target", "tilesPerIpu"},
                                    {"target", "bytesPerTile"},
                                    {"target", "numIPUs"},
                                    {"target", "ipusPerReplica"},
                                    {"graph", "numVertices"},
                                    {"operation", "ipu"},
                                    {"operation", "executions"},
                                    {"operation", "compute"},
                                    {"operation", "flops"},
                                    {"operation", "name"},
                                    {"operation", "op"},
                                    {"operation", "instruction"},
                                    {"operation", "phase"},
                                    {"program", "parent"},
                                    {"program", "callee"},
                                    {"program", "operation"},
                                    {"program", "times"},
                                    {"program", "tileBalance"},
                                    {"program", "cyclesByTile"},
                                    {"variable", "name"},
                                    {"variable", "type"},
                                    {"variable", "bytes"},
                                    {"variable", "firstTile"},
                                    {"variable", "tiles"},
                                    {"variable", "bytesPerTile"},
                                    {"variable", "lastStep"},
                                    {"variable", "operation"},
                                    {"memory", "bytesByTile"},
                                    {"memory", "category"},
                                    {"liveness_step", "step"},
                                    {"liveness_step", "operation"},
                                    {"liveness_step", "notAlwaysLive"},
                                    {"liveness_step", "temporaryPerTile"},
                                    {"stream", "bytes"},
                                    {"step", "cyclesFrom"},
                                    {"step", "cyclesTo"},
                                    {"step", "waiting"},
                                    {"step", "ipu"},
                                    {"run", "cycles"},
                                    {"meta", "value"}};
  const char* const values[] = {
      "NULL",  "-1", "0",   "1",         "9223372036854775807", "4294967295",
      "1e308", "''", "'x'", "x'00ffff'", "zeroblob(100000)",    "char(27, 91, 109, 10)"};
  uint64_t shown = 0, all = 0;
  for (const auto& [table, column] : columns) {
    for (const char* value : values) {
      for (const char* rows : {"", " WHERE rowid = 2"}) {
        const std::string path = Write(sound_);
        {
          const auto database = pva::Database::Open(path, pva::Database::Mode::kWrite);
          ASSERT_TRUE(database.ok()) << database.status();
          (*database)->Execute(
              absl::StrCat("UPDATE ", table, " SET ", column, " = ", value, rows).c_str());
        }
        SCOPED_TRACE(absl::StrCat(table, ".", column, " = ", value, rows));
        shown += Show(path) ? 1 : 0;
        ++all;
      }
    }
  }
  EXPECT_GT(shown, all / 10);
  EXPECT_LT(shown, all);
}

}  // namespace
}  // namespace vpod::popvision
