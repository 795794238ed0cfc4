// The numbers that views print are those of the SQLite file, read without the library that views
// read it with.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/popvision/test_profiles.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using Json = nlohmann::json;

class DatabaseTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    run_ = new RecordedRun(Record({}, /*keep=*/true));
    ASSERT_EQ(sqlite3_open_v2(run_->report.path.c_str(), &database_, SQLITE_OPEN_READONLY, nullptr),
              SQLITE_OK);
  }
  static void TearDownTestSuite() { sqlite3_close(database_); }

  // Columns become numbers and texts; blobs become texts of their bytes.
  static std::vector<std::vector<Json>> Select(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    EXPECT_EQ(sqlite3_prepare_v2(database_, absl::StrCat("SELECT ", sql).c_str(), -1, &statement,
                                 nullptr),
              SQLITE_OK)
        << sqlite3_errmsg(database_);
    std::vector<std::vector<Json>> rows;
    while (sqlite3_step(statement) == SQLITE_ROW) {
      std::vector<Json>& row = rows.emplace_back();
      for (int i = 0; i < sqlite3_column_count(statement); ++i) {
        const int type = sqlite3_column_type(statement, i);
        if (type == SQLITE_INTEGER) {
          row.emplace_back(sqlite3_column_int64(statement, i));
        } else if (type == SQLITE_FLOAT) {
          row.emplace_back(sqlite3_column_double(statement, i));
        } else {
          const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, i));
          row.emplace_back(
              std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement, i))));
        }
      }
    }
    sqlite3_finalize(statement);
    return rows;
  }
  static Json One(const std::string& sql) { return Select(sql).at(0).at(0); }

  // The values of a `…ByTile` column, by tile.
  static std::vector<uint64_t> Values(const std::string& blob) {
    constexpr size_t kRun = sizeof(uint32_t) + sizeof(uint64_t);
    std::vector<uint64_t> values;
    for (size_t at = 0; at < blob.size(); at += kRun) {
      uint32_t tiles = 0;
      uint64_t value = 0;
      std::memcpy(&tiles, &blob[at], sizeof(tiles));
      std::memcpy(&value, &blob[at + sizeof(tiles)], sizeof(value));
      values.insert(values.end(), tiles, value);
    }
    return values;
  }

  static RecordedRun* run_;
  static sqlite3* database_;
};
RecordedRun* DatabaseTest::run_;
sqlite3* DatabaseTest::database_;

TEST_F(DatabaseTest, Facts) {
  const Document summary = Summary(run_->report);
  const Json target = Find(summary, "Target")["facts"];
  const std::vector<Json> row = Select(
      "numIPUs, numReplicas, ipusPerReplica, tilesPerIpu, bytesPerTile, clockFrequency FROM "
      "target")[0];
  EXPECT_EQ(target["IPUs"], row[0]);
  EXPECT_EQ(target["Replicas"], row[1]);
  EXPECT_EQ(target["IPUs per replica"], row[2]);
  EXPECT_EQ(target["Tiles per IPU"], row[3]);
  EXPECT_EQ(target["Memory per tile (bytes)"], row[4]);
  EXPECT_EQ(target["Clock (MHz)"], row[5].get<double>() / 1e6);
  const Json graph = Find(summary, "Graph of a replica")["facts"];
  const std::vector<Json> counts =
      Select("numComputeSets, numVertices, numEdges, numVars FROM graph")[0];
  EXPECT_EQ(graph["Compute sets"], counts[0]);
  EXPECT_EQ(graph["Vertices"], counts[1]);
  EXPECT_EQ(graph["Edges"], counts[2]);
  EXPECT_EQ(graph["Variables"], counts[3]);
  const Json weights = Find(summary, "Weights of a replica, which runs leave on the IPUs")["facts"];
  EXPECT_EQ(absl::StrCat(weights["Cycles from the host"].get<uint64_t>()),
            One("value FROM meta WHERE key = 'cyclesOfWeightsFromHost'"));
  EXPECT_EQ(absl::StrCat(weights["Cycles to the host"].get<uint64_t>()),
            One("value FROM meta WHERE key = 'cyclesOfWeightsToHost'"));
  const auto runs = Rows(summary, "Runs");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["Cycles"], One("cycles FROM run"));
}

TEST_F(DatabaseTest, Streams) {
  const auto rows = Rows(Summary(run_->report), "Host streams of a replica in a run");
  const auto streams = Select("name, ipu, bytes, direction = 'toDevice' FROM stream");
  ASSERT_EQ(rows.size(), streams.size());
  for (const auto& stream : streams) {
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const Json& row) {
      return row["Stream"] == stream[0] && row["IPU"] == stream[1] && row["Bytes"] == stream[2] &&
             row["Direction"] == (stream[3] == 1 ? "to device" : "from device");
    })) << stream[0];
  }
}

TEST_F(DatabaseTest, MemoryOfTiles) {
  const Document memory = Memory(run_->report);
  for (const Json& row : Rows(memory, "Memory")) {
    const std::string ipu = row["IPU"].dump();
    std::vector<uint64_t> total;  // by tile
    uint64_t all = 0;
    const Json chart = Find(memory, absl::StrCat("Memory of IPU ", ipu, " by tile"))["series"];
    for (const auto& each :
         Select(absl::StrCat("category, bytesByTile FROM memory WHERE ipu = ", ipu))) {
      const std::string category = each[0];
      const std::vector<uint64_t> tiles = Values(each[1]);
      total.resize(tiles.size());
      uint64_t sum = 0;
      for (size_t tile = 0; tile < tiles.size(); ++tile) {
        total[tile] += tiles[tile];
        sum += tiles[tile];
      }
      EXPECT_EQ(row[category], sum) << category;
      EXPECT_EQ(chart[category], tiles) << category;
      all += sum;
    }
    EXPECT_EQ(row["total"], all);
    const auto fullest = std::max_element(total.begin(), total.end());
    EXPECT_EQ(row["fullest tile"], *fullest);
    const Json first = Rows(memory, absl::StrCat("Fullest tiles of IPU ", ipu))[0];
    EXPECT_EQ(first["Tile"], fullest - total.begin());
    EXPECT_EQ(first["Bytes"], *fullest);
  }
}

TEST_F(DatabaseTest, LargestValuesAtThePeak) {
  const Document liveness = Liveness(run_->report);
  for (const char* ipu : {"0", "1"}) {
    const Json peak = Find(liveness, absl::StrCat("Peak of IPU ", ipu))["facts"];
    const std::string step = peak["Step"].dump();
    const std::vector<Json> at = Select(absl::StrCat(
        "notAlwaysLive, temporaryPerTile, name FROM liveness_step JOIN operation ON operation = "
        "operation.id WHERE liveness_step.ipu = ",
        ipu, " AND step = ", step))[0];
    EXPECT_EQ(peak["Not always live (bytes)"], at[0]);
    EXPECT_EQ(peak["Temporary data, per tile (bytes)"], at[1]);
    EXPECT_EQ(peak["Operation"], at[2]);
    EXPECT_EQ(peak["Always live (bytes)"],
              One(absl::StrCat(
                  "sum(tiles * bytesPerTile) FROM variable WHERE alwaysLive AND ipu = ", ipu)));
    const auto rows = Rows(liveness, absl::StrCat("Largest values of IPU ", ipu, " at the peak"));
    const auto variables = Select(absl::StrCat(
        "bytes, tiles, bytesPerTile, name FROM variable WHERE NOT alwaysLive AND ipu = ", ipu,
        " AND firstStep <= ", step, " AND lastStep >= ", step, " ORDER BY bytes DESC"));
    ASSERT_LE(rows.size(), variables.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i]["Bytes"], variables[i][0]);
      EXPECT_TRUE(std::any_of(variables.begin(), variables.end(), [&](const auto& variable) {
        return rows[i]["Bytes"] == variable[0] && rows[i]["Tiles"] == variable[1] &&
               rows[i]["Bytes per tile"] == variable[2] && rows[i]["Variable"] == variable[3];
      })) << rows[i];
    }
  }
}

TEST_F(DatabaseTest, CyclesOfIpus) {
  const double clock = One("clockFrequency FROM target");
  for (const Json& row : Rows(Trace(run_->report), "Execution of a run")) {
    const std::string of_ipu = absl::StrCat(" WHERE ipu = ", row["IPU"].dump());
    const Json end = One("max(cyclesTo) FROM step");
    EXPECT_EQ(row["Cycles"], end);
    EXPECT_EQ(end, One("cycles FROM run WHERE id = 0"));
    const double cycles = end;
    const std::vector<Json> sums = Select(
        absl::StrCat("sum(executions * compute), sum(executions * exchange), sum(executions * "
                     "sync), sum(executions * flops), sum(executions * fromHost), sum(executions * "
                     "toHost) FROM operation",
                     of_ipu))[0];
    EXPECT_DOUBLE_EQ(row["Compute %"], 100 * sums[0].get<double>() / cycles);
    EXPECT_DOUBLE_EQ(row["Exchange %"], 100 * sums[1].get<double>() / cycles);
    EXPECT_DOUBLE_EQ(row["Sync %"], 100 * sums[2].get<double>() / cycles);
    EXPECT_NEAR(row["TFLOP/s"], sums[3].get<double>() / (cycles / clock) / 1e12, 1e-9);
    EXPECT_EQ(row["From host (bytes)"], sums[4]);
    EXPECT_EQ(row["To host (bytes)"], sums[5]);
    // An IPU that has ended waits for the last one.
    const double waiting = One(absl::StrCat("sum(waiting) - max(cyclesTo) FROM step", of_ipu));
    EXPECT_DOUBLE_EQ(row["Waiting %"], 100 * (waiting + cycles) / cycles);
  }
}

TEST_F(DatabaseTest, CyclesOfOperations) {
  const Document operations = Operations(run_->report);
  for (const auto& [title, name, column] :
       {std::tuple("Phases, all IPUs of a replica in a run", "Phase", "phase"),
        std::tuple("Instructions", "Instruction", "instruction")}) {
    const auto rows = Rows(operations, title);
    EXPECT_FALSE(rows.empty());
    for (const Json& row : rows) {
      const std::string value = row[name];
      const std::vector<Json> sums = Select(absl::StrCat(
          "sum(executions), sum(executions * (compute + exchange + sync)), sum(executions * "
          "compute), sum(executions * exchange), sum(executions * sync), sum(executions * flops) "
          "FROM operation WHERE ",
          column, " = '", value == "other" ? "" : value, "'"))[0];
      const char* names[] = {"Executions", "Cycles", "Compute", "Exchange", "Sync"};
      for (size_t i = 0; i < std::size(names); ++i)
        EXPECT_EQ(row[names[i]], sums[i]) << value << " " << names[i];
      EXPECT_NEAR(row["GFLOP"], sums[5].get<double>() / 1e9, 1e-9) << value;
    }
  }
}

TEST_F(DatabaseTest, CyclesOfThePrograms) {
  const Document program = ProgramTree(run_->report);
  for (const char* ipu : {"0", "1"}) {
    std::multimap<std::string, std::vector<Json>> nodes;  // by type and name
    for (const auto& row :
         Select(absl::StrCat("type || ' ' || name, times, compute, exchange, sync, vertices FROM "
                             "program WHERE ipu = ",
                             ipu)))
      nodes.emplace(row[0], row);
    std::vector<Json> rows = Rows(program, absl::StrCat("Program of IPU ", ipu));
    // Functions that are called a second time.
    std::erase_if(rows, [](const Json& row) {
      return absl::EndsWith(row["Program"].get<std::string>(), " (as above)");
    });
    EXPECT_EQ(rows.size(), nodes.size());
    for (const Json& row : rows) {
      std::string name = row["Program"];
      name.erase(0, name.find_first_not_of(' '));
      const auto [begin, end] = nodes.equal_range(name);
      EXPECT_TRUE(std::any_of(begin, end, [&](const auto& node) {
        const std::vector<Json>& values = node.second;
        return row["Times"] == values[1] && row["Compute"] == values[2] &&
               row["Exchange"] == values[3] && row["Sync"] == values[4] &&
               row["Vertices"] == values[5];
      })) << row;
    }
  }
}

// Insights are sentences: their numbers are rounded, and each that is found is compared.
TEST_F(DatabaseTest, FiguresOfInsights) {
  const Document insights = Insights(run_->report);
  const auto notes = [&](size_t block) { return std::get<Notes>(insights.blocks[block]).notes; };
  const double capacity = One("bytesPerTile FROM target");
  const std::regex memory(
      R"(IPU (\d+) needs ([\d.]+) MB; its fullest tile, (\d+), uses (\d+) %.*)");
  std::set<std::string> ipus;
  for (const std::string& note : notes(0)) {
    std::smatch found;
    if (!std::regex_match(note, found, memory)) continue;
    ipus.insert(found[1]);
    std::vector<uint64_t> total;  // by tile
    for (const auto& each :
         Select(absl::StrCat("bytesByTile FROM memory WHERE ipu = ", found[1].str()))) {
      const std::vector<uint64_t> tiles = Values(each[0]);
      total.resize(tiles.size());
      for (size_t tile = 0; tile < tiles.size(); ++tile) total[tile] += tiles[tile];
    }
    const auto fullest = std::max_element(total.begin(), total.end());
    EXPECT_NEAR(std::stod(found[2]) * 1e6,
                static_cast<double>(std::accumulate(total.begin(), total.end(), uint64_t{0})), 5e4);
    EXPECT_EQ(std::stol(found[3]), fullest - total.begin());
    EXPECT_NEAR(std::stod(found[4]), 100 * static_cast<double>(*fullest) / capacity, 0.5);
  }
  EXPECT_EQ(ipus, (std::set<std::string>{"0", "1"}));
  // The parts of a run that notes name.
  const std::map<std::string, std::string> cycles = {
      {"is idle for", "sum(waiting) + (SELECT max(cyclesTo) FROM step) - max(cyclesTo) FROM step"},
      {"with host streams",
       "sum(executions * (compute + exchange + sync)) FROM operation WHERE fromHost + toHost > 0"},
      {"synchronising", "sum(executions * sync) FROM operation"},
      {"with updates of the weights",
       "sum(executions * (compute + exchange + sync)) FROM operation WHERE phase = 'update'"}};
  const std::regex time(R"(IPU (\d+) (is idle for|spends) (\d+) % of a run ?([^.]*)\. .*)");
  const double run = One("cycles FROM run");
  size_t compared = 0;
  for (const std::string& note : notes(1)) {
    std::smatch found;
    if (!std::regex_match(note, found, time)) continue;
    const auto sql = cycles.find(found[2] == "spends" ? found[4] : found[2]);
    ASSERT_NE(sql, cycles.end()) << note;
    const char* ipu = absl::StrContains(sql->second, "WHERE") ? " AND ipu = " : " WHERE ipu = ";
    const double part = One(absl::StrCat(sql->second, ipu, found[1].str()));
    EXPECT_NEAR(std::stod(found[3]), 100 * part / run, 0.5) << note;
    ++compared;
  }
  EXPECT_GT(compared, 0u);
}

}  // namespace
}  // namespace vpod::popvision
