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

Rows Details(uint32_t ipus, uint32_t rounds, base::Cycles exchange) {
  return {{"ipus", absl::StrCat(ipus)},
          {"tiles_per_ipu", absl::StrCat(kTiles)},
          {"rounds", absl::StrCat(rounds)},
          {"bytes_per_tile", absl::StrCat(rounds * kWords * sizeof(uint32_t))},
          {"exchange_cycles", absl::StrCat(exchange.value())}};
}

// Where the block of a tile goes in one move; no tile keeps its own, since 4t + 7 is odd.
uint32_t Destination(uint32_t tile) { return (5 * tile + 7) % kTiles; }

// The numbers of all words, or their complements: small enough to be exact as float32.
float BlockWord(uint32_t tile, uint32_t word, bool complement) {
  const uint32_t number = tile * kWords + word;
  return static_cast<float>(complement ? (1u << 24) - 1 - number : number);
}

ProgramBuilder BuildMoves() {
  const program::TensorType blocks{v1::FLOAT32, {kTiles, kWords}};
  const program::TensorType square{v1::FLOAT32, {kTiles, kTiles}};
  // Streams carry bits, which are compared as such.
  ProgramBuilder builder;
  const uint32_t here = builder.Tensor(blocks), there = builder.Tensor(blocks);
  const uint32_t permutation = builder.Tensor(square);
  const uint32_t in = builder.Stream("in", Direction::kToDevice, blocks);
  const uint32_t matrix = builder.Stream("permutation", Direction::kToDevice, square);
  const uint32_t out = builder.Stream("out", Direction::kFromDevice, blocks);
  Steps twice = builder.Function();
  twice.MatMul(permutation, here, there, v1::FLOAT32);
  twice.MatMul(permutation, there, here, v1::FLOAT32);
  builder.Program("move").Repeat(kMoves / 2, twice);
  builder.Program("learn").StreamIn(matrix, permutation);
  builder.Program("load").StreamIn(in, here);
  builder.Program("store").StreamOut(out, here);
  return builder;
}

std::vector<uint32_t> PermutationMatrix() {
  std::vector<uint32_t> bits(size_t{kTiles} * kTiles);
  for (uint32_t tile = 0; tile < kTiles; ++tile)
    bits[size_t{Destination(tile)} * kTiles + tile] = std::bit_cast<uint32_t>(1.0f);
  return bits;
}

// Bits of the blocks before the moves, by tile.
std::vector<uint32_t> Blocks(bool complement) {
  std::vector<uint32_t> bits(kTiles * kWords);
  for (uint32_t i = 0; i < bits.size(); ++i)
    bits[i] = std::bit_cast<uint32_t>(BlockWord(i / kWords, i % kWords, complement));
  return bits;
}

// The tile whose block lies on each tile after all moves.
std::vector<uint32_t> Sources() {
  std::vector<uint32_t> sources(kTiles);
  for (uint32_t tile = 0; tile < kTiles; ++tile) {
    uint32_t at = tile;
    for (uint32_t move = 0; move < kMoves; ++move) at = Destination(at);
    sources[at] = tile;
  }
  return sources;
}

ProgramBuilder BuildBroadcast() {
  const program::TensorType blocks{v1::UINT32, {kTiles, kWords}}, block{v1::UINT32, {kWords}};
  ProgramBuilder builder;
  const uint32_t own = builder.Tensor(blocks), received = builder.Tensor(blocks);
  const uint32_t sent = builder.Tensor(block);
  const uint32_t tags = builder.Stream("tags", Direction::kToDevice, blocks);
  const uint32_t in = builder.Stream("in", Direction::kToDevice, block);
  const uint32_t out = builder.Stream("out", Direction::kFromDevice, blocks);
  builder.Program("write").Binary(v1::ADD, own, sent, received);
  builder.Program("learn").StreamIn(tags, own);
  builder.Program("load").StreamIn(in, sent);
  builder.Program("store").StreamOut(out, received);
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
    const model::Topology topology = TopologyOf(*device);
    VPOD_ASSIGN_OR_RETURN(const auto compiled, builder.Compile());
    VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
    return Test(std::move(session), topology.clock_hz,
                model::PriceProgram(builder.executable(), 0, 0, topology).exchange);
  }

  session::Session& session() { return *session_; }
  // Price of the program under test, the first of the executable.
  base::Cycles exchange_price() const { return exchange_price_; }
  absl::Status Run(const char* program) {
    VPOD_ASSIGN_OR_RETURN(const base::Cycles run, session_->Run(program));
    cycles_ += run;
    return absl::OkStatus();
  }
  TileTestReport Report(Rows details, const std::optional<TileFault>& fault) const {
    return {.details = std::move(details),
            .seconds = static_cast<double>(cycles_.value()) / clock_hz_,
            .wall_seconds = timer_.Seconds(),
            .fault = fault};
  }

 private:
  Test(std::unique_ptr<session::Session> session, double clock_hz, base::Cycles exchange_price)
      : session_(std::move(session)), clock_hz_(clock_hz), exchange_price_(exchange_price) {}

  std::unique_ptr<session::Session> session_;
  double clock_hz_;
  base::Cycles exchange_price_;
  base::Cycles cycles_;
  WallTimer timer_;
};

}  // namespace

absl::StatusOr<TileTestReport> TestExchange(std::unique_ptr<session::Device> device) {
  VPOD_ASSIGN_OR_RETURN(Test test, Test::Create(std::move(device), BuildMoves()));
  session::Session& session = test.session();
  VPOD_RETURN_IF_ERROR(Send(session, "permutation", PermutationMatrix()));
  VPOD_RETURN_IF_ERROR(test.Run("learn"));
  const std::vector<uint32_t> sources = Sources();
  std::optional<TileFault> fault;
  for (const bool complement : {false, true}) {
    const std::vector<uint32_t> blocks = Blocks(complement);
    VPOD_RETURN_IF_ERROR(Send(session, "in", blocks));
    for (const char* program : {"load", "move", "store"}) VPOD_RETURN_IF_ERROR(test.Run(program));
    const auto expected = [&](uint32_t tile, uint32_t word) {
      return blocks[sources[tile] * kWords + word];
    };
    VPOD_RETURN_IF_ERROR(Compare(session, expected, fault));
    if (fault.has_value()) break;
  }
  return test.Report(
      Details(session.device().local_replicas(), 2 * kMoves, test.exchange_price() * 2), fault);
}

absl::StatusOr<TileTestReport> TestExchangeWrite(std::unique_ptr<session::Device> device) {
  VPOD_ASSIGN_OR_RETURN(Test test, Test::Create(std::move(device), BuildBroadcast()));
  session::Session& session = test.session();
  std::vector<uint32_t> tags(kTiles * kWords), block(kWords);
  for (uint32_t i = 0; i < tags.size(); ++i) tags[i] = TagOf(i / kWords);
  VPOD_RETURN_IF_ERROR(Send(session, "tags", tags));
  VPOD_RETURN_IF_ERROR(test.Run("learn"));
  std::optional<TileFault> fault;
  for (uint32_t round = 0; round < kBroadcastRounds && !fault.has_value(); ++round) {
    for (uint32_t word = 0; word < kWords; ++word) block[word] = SentWord(round, word);
    VPOD_RETURN_IF_ERROR(Send(session, "in", block));
    for (const char* program : {"load", "write", "store"}) VPOD_RETURN_IF_ERROR(test.Run(program));
    const auto expected = [&](uint32_t tile, uint32_t word) { return TagOf(tile) + block[word]; };
    VPOD_RETURN_IF_ERROR(Compare(session, expected, fault));
  }
  return test.Report(Details(session.device().local_replicas(), kBroadcastRounds,
                             test.exchange_price() * kBroadcastRounds),
                     fault);
}

}  // namespace vpod::tools
