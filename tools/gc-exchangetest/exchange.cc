#include "tools/gc-exchangetest/exchange.h"

#include <bit>
#include <cstring>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "tools/device_check/program_builder.h"

namespace vpod::tools {
namespace {

namespace v1 = program::v1;

constexpr uint32_t kTiles = arch::kTilesPerIpu;
constexpr uint32_t kWords = 64;            // of a block
constexpr uint32_t kMoves = 8;             // of a block from tile to tile; even
constexpr uint32_t kBroadcastRounds = 32;  // each bit of each word once

using ExpectedWord = std::function<uint32_t(uint32_t tile, uint32_t word)>;

// Compares the stream "out" of all IPUs with what should be there.
absl::Status Compare(session::Session& session, const ExpectedWord& expected,
                     std::optional<TileFault>& fault) {
  for (uint32_t ipu = 0; ipu < session.device().local_replicas(); ++ipu) {
    VPOD_ASSIGN_OR_RETURN(const auto words, session.Stream<uint32_t>("out", ipu));
    for (uint32_t i = 0; i < kTiles * kWords && !fault.has_value(); ++i) {
      const uint32_t tile = i / kWords, word = i % kWords, wanted = expected(tile, word);
      if (words[i] != wanted)
        fault = TileFault{ipu, tile, kFirstDataAddress + word * 4, wanted, words[i]};
    }
  }
  return absl::OkStatus();
}

// Fills a stream of every IPU with words.
absl::Status Send(session::Session& session, const char* stream,
                  const std::vector<uint32_t>& words) {
  for (uint32_t ipu = 0; ipu < session.device().local_replicas(); ++ipu) {
    VPOD_ASSIGN_OR_RETURN(const auto buffer, session.Stream<uint32_t>(stream, ipu));
    std::memcpy(buffer.data(), words.data(), words.size() * sizeof(uint32_t));
  }
  return absl::OkStatus();
}

// Where a word goes in one move, in which the matrix of the blocks, a row a tile, is transposed:
// the words of a tile go to as many tiles.
uint32_t Destination(uint32_t place) { return place % kWords * kTiles + place / kWords; }

ProgramBuilder BuildMoves() {
  const program::TensorType blocks{v1::UINT32, {kTiles, kWords}};
  ProgramBuilder builder;
  const uint32_t here = builder.Tensor(blocks), there = builder.Tensor(blocks);
  const uint32_t here_transposed = builder.View(here, {kWords, kTiles});
  const uint32_t there_transposed = builder.View(there, {kWords, kTiles});
  const uint32_t in = builder.Stream("in", Direction::kToDevice, blocks);
  const uint32_t out = builder.Stream("out", Direction::kFromDevice, blocks);
  Steps move = builder.Function();
  move.Transpose(here, there_transposed);
  move.Transpose(there, here_transposed);
  Steps stay = builder.Function();
  stay.Copy(here, there);
  stay.Copy(there, here);
  builder.Program("move").Repeat(kMoves / 2, move);
  builder.Program("stay").Repeat(kMoves / 2, stay);
  builder.Program("load").StreamIn(in, here);
  builder.Program("store").StreamOut(out, here);
  return builder;
}

// The words before the moves: each is there once.
std::vector<uint32_t> Blocks(bool complement) {
  std::vector<uint32_t> words(kTiles * kWords);
  for (uint32_t i = 0; i < words.size(); ++i) words[i] = complement ? ~i : i;
  return words;
}

// The place from which the word at each place has come, after all moves.
std::vector<uint32_t> Sources() {
  std::vector<uint32_t> sources(kTiles * kWords);
  for (uint32_t place = 0; place < sources.size(); ++place) {
    uint32_t at = place;
    for (uint32_t move = 0; move < kMoves; ++move) at = Destination(at);
    sources[at] = place;
  }
  return sources;
}

ProgramBuilder BuildBroadcast() {
  const program::TensorType blocks{v1::UINT32, {kTiles, kWords}}, block{v1::UINT32, {kWords}};
  ProgramBuilder builder;
  const uint32_t own = builder.Tensor(blocks), received = builder.Tensor(blocks);
  const uint32_t sum = builder.Tensor(blocks), sent = builder.Tensor(block);
  const uint32_t tags = builder.Stream("tags", Direction::kToDevice, blocks);
  const uint32_t in = builder.Stream("in", Direction::kToDevice, block);
  const uint32_t out = builder.Stream("out", Direction::kFromDevice, blocks);
  Steps write = builder.Program("write");
  write.Expand(sent, received);
  write.Binary(v1::ADD, own, received, sum);
  Steps stay = builder.Program("stay");
  stay.Copy(own, received);
  stay.Binary(v1::ADD, own, received, sum);
  builder.Program("learn").StreamIn(tags, own);
  builder.Program("load").StreamIn(in, sent);
  builder.Program("store").StreamOut(out, sum);
  return builder;
}

// A bit walks through the words of the block, round after round.
uint32_t SentWord(uint32_t round, uint32_t word) {
  return std::rotl(1u, static_cast<int>(round + word));
}
uint32_t TagOf(uint32_t tile) { return tile * 0x01000193u; }

// A test program on a device, with the sums of its figures.
class Test {
 public:
  static absl::StatusOr<Test> Create(std::unique_ptr<session::Device> device,
                                     const ProgramBuilder& builder) {
    VPOD_ASSIGN_OR_RETURN(const auto compiled, builder.Compile());
    VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
    return Test(std::move(session));
  }

  session::Session& session() { return *session_; }
  absl::StatusOr<base::Cycles> Run(const char* program) {
    VPOD_ASSIGN_OR_RETURN(const base::Cycles run, session_->Run(program));
    cycles_ += run;
    return run;
  }
  // Loads what was sent, runs a program and stores the results. Its exchanges take what it is
  // longer than the program "stay", which does the same with data that stay on their tiles.
  absl::Status RunBetweenTransfers(const char* program) {
    VPOD_RETURN_IF_ERROR(Run("load").status());
    VPOD_ASSIGN_OR_RETURN(const base::Cycles without, Run("stay"));
    VPOD_ASSIGN_OR_RETURN(const base::Cycles with, Run(program));
    exchange_cycles_ += with - without;
    return Run("store").status();
  }
  TileTestReport Report(uint32_t rounds, const std::optional<TileFault>& fault) const {
    return {.details = {{"ipus", absl::StrCat(session_->device().local_replicas())},
                        {"tiles_per_ipu", absl::StrCat(kTiles)},
                        {"rounds", absl::StrCat(rounds)},
                        {"bytes_per_tile", absl::StrCat(rounds * kWords * sizeof(uint32_t))},
                        {"exchange_cycles", absl::StrCat(exchange_cycles_.value())}},
            .seconds = static_cast<double>(cycles_.value()) / session_->device().clock_hz(),
            .wall_seconds = timer_.Seconds(),
            .fault = fault};
  }

 private:
  explicit Test(std::unique_ptr<session::Session> session) : session_(std::move(session)) {}

  std::unique_ptr<session::Session> session_;
  base::Cycles cycles_, exchange_cycles_;
  WallTimer timer_;
};

}  // namespace

absl::StatusOr<TileTestReport> TestExchange(std::unique_ptr<session::Device> device) {
  VPOD_ASSIGN_OR_RETURN(Test test, Test::Create(std::move(device), BuildMoves()));
  session::Session& session = test.session();
  const std::vector<uint32_t> sources = Sources();
  std::optional<TileFault> fault;
  for (const bool complement : {false, true}) {
    const std::vector<uint32_t> blocks = Blocks(complement);
    VPOD_RETURN_IF_ERROR(Send(session, "in", blocks));
    VPOD_RETURN_IF_ERROR(test.RunBetweenTransfers("move"));
    const auto expected = [&](uint32_t tile, uint32_t word) {
      return blocks[sources[tile * kWords + word]];
    };
    VPOD_RETURN_IF_ERROR(Compare(session, expected, fault));
    if (fault.has_value()) break;
  }
  return test.Report(2 * kMoves, fault);
}

absl::StatusOr<TileTestReport> TestExchangeWrite(std::unique_ptr<session::Device> device) {
  VPOD_ASSIGN_OR_RETURN(Test test, Test::Create(std::move(device), BuildBroadcast()));
  session::Session& session = test.session();
  std::vector<uint32_t> tags(kTiles * kWords), block(kWords);
  for (uint32_t i = 0; i < tags.size(); ++i) tags[i] = TagOf(i / kWords);
  VPOD_RETURN_IF_ERROR(Send(session, "tags", tags));
  VPOD_RETURN_IF_ERROR(test.Run("learn").status());
  std::optional<TileFault> fault;
  for (uint32_t round = 0; round < kBroadcastRounds && !fault.has_value(); ++round) {
    for (uint32_t word = 0; word < kWords; ++word) block[word] = SentWord(round, word);
    VPOD_RETURN_IF_ERROR(Send(session, "in", block));
    VPOD_RETURN_IF_ERROR(test.RunBetweenTransfers("write"));
    const auto expected = [&](uint32_t tile, uint32_t word) { return TagOf(tile) + block[word]; };
    VPOD_RETURN_IF_ERROR(Compare(session, expected, fault));
  }
  return test.Report(kBroadcastRounds, fault);
}

}  // namespace vpod::tools
