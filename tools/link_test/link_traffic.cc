#include "tools/link_test/link_traffic.h"

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "device/base/pattern.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "tools/device_check/program_builder.h"

namespace vpod::tools {
namespace {

namespace v1 = program::v1;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kAllToAllWords = 64 * 1024;  // at most, on each IPU
constexpr int64_t kMatrixSize = 128;

// An executable of one program "traffic" that repeats function 0 on every IPU.
class Builder {
 public:
  Builder(uint32_t num_ipus, const LinkTrafficOptions& options) : iterations_(options.iterations) {
    executable_.set_ipus_per_replica(num_ipus);
    for (uint32_t ipu = 0; ipu < num_ipus; ++ipu) {
      executable_.add_ipus()->add_functions();
      if (options.high_power) Multiply(ipu);
    }
  }

  // A tensor that the host reads and writes as `name`; its index.
  uint32_t Variable(uint32_t ipu, const std::string& name, const program::TensorType& type) {
    const uint32_t tensor = Tensor(ipu, type);
    v1::Variable* variable = executable_.add_variables();
    variable->set_name(name);
    variable->set_ipu(ipu);
    variable->set_tensor(tensor);
    return tensor;
  }
  uint32_t Tensor(uint32_t ipu, const program::TensorType& type) {
    return AddTensor(*executable_.mutable_ipus(static_cast<int>(ipu)), type);
  }
  void Copy(uint32_t from, uint32_t from_tensor, uint32_t to, uint32_t to_tensor) {
    v1::Move* move = executable_.add_exchanges()->add_moves();
    move->set_from_ipu(from);
    move->set_from_tensor(from_tensor);
    move->set_to_ipu(to);
    move->set_to_tensor(to_tensor);
    const auto exchange = static_cast<uint32_t>(executable_.exchanges_size() - 1);
    v1::Instruction* send = Add(from);
    send->add_inputs(from_tensor);
    send->mutable_exchange()->set_exchange(exchange);
    v1::Instruction* receive = Add(to);
    receive->add_outputs(to_tensor);
    receive->mutable_exchange()->set_exchange(exchange);
  }
  v1::Instruction* Add(uint32_t ipu) {
    return executable_.mutable_ipus(static_cast<int>(ipu))
        ->mutable_functions(0)
        ->add_instructions();
  }
  // Loads what has been built.
  absl::Status Load(session::Device& device) {
    v1::Program* program = executable_.add_programs();
    program->set_name("traffic");
    for (v1::Ipu& ipu : *executable_.mutable_ipus()) {
      if (ipu.functions(0).instructions().empty()) {  // it idles
        program->add_functions(0);
        continue;
      }
      v1::Repeat* repeat = ipu.add_functions()->add_instructions()->mutable_repeat();
      repeat->set_count(iterations_);
      program->add_functions(1);
    }
    VPOD_ASSIGN_OR_RETURN(auto executable, program::Executable::Make(executable_));
    return device.Load(std::move(executable), {});
  }

 private:
  void Multiply(uint32_t ipu) {
    v1::Instruction* product = Add(ipu);
    product->mutable_mat_mul();
    for (int input = 0; input < 2; ++input)
      product->add_inputs(Tensor(ipu, {v1::FLOAT32, {kMatrixSize, kMatrixSize}}));
    product->add_outputs(Tensor(ipu, {v1::FLOAT32, {kMatrixSize, kMatrixSize}}));
  }

  const uint32_t iterations_;
  v1::Executable executable_;
};

constexpr int64_t kTransferWords = kTransferBytes / 4;

// Returns the data that a round sends from IPU `a` to `b`; it differs from that of other rounds.
std::string Pattern(uint32_t round, uint32_t a, uint32_t b, size_t bytes = kTransferBytes) {
  std::string pattern(bytes, '\0');
  base::FillPattern({reinterpret_cast<std::byte*>(pattern.data()), bytes},
                    (uint64_t{round} << 32) + a * 64 + b);
  return pattern;
}

uint64_t WrongWords(const std::string& expected, const std::string& found) {
  if (expected.size() != found.size()) return expected.size() / 4;
  uint64_t wrong = 0;
  for (size_t at = 0; at < expected.size(); at += 4)
    wrong += std::memcmp(expected.data() + at, found.data() + at, 4) != 0;
  return wrong;
}

// Runs the program and takes its time.
absl::Status Run(session::Device& device, LinkTraffic& traffic) {
  const auto begin = Clock::now();
  VPOD_ASSIGN_OR_RETURN(const base::Cycles cycles, device.Run(0, 0));
  traffic.seconds = static_cast<double>(cycles.value()) / device.clock_hz();
  traffic.wall_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return absl::OkStatus();
}

// Compares a variable on every replica of the device.
absl::Status Check(session::Device& device, const std::string& name, const std::string& expected,
                   LinkTraffic& traffic) {
  for (uint32_t replica = 0; replica < device.local_replicas(); ++replica) {
    VPOD_ASSIGN_OR_RETURN(const std::string found, device.ReadVariable(name, replica));
    traffic.errors += WrongWords(expected, found);
  }
  return absl::OkStatus();
}

// Back and forth between two IPUs: what is in `name` of `a` at the end has made every journey.
void AddPair(Builder& builder, uint32_t a, uint32_t b, const std::string& name,
             const std::string& far_name) {
  const uint32_t there = builder.Variable(a, name, {v1::INT32, {kTransferWords}});
  const uint32_t back = builder.Variable(b, far_name, {v1::INT32, {kTransferWords}});
  builder.Copy(a, there, b, back);
  builder.Copy(b, back, a, there);
}

// All-to-alls of the first `num_ipus` with the same IPUs of other replicas. Done twice, each part
// is back where it was, in "parts<ipu>".
struct AllToAll {
  uint32_t num_ipus, members;
  v1::ReplicaGroup group;

  uint32_t words() const { return kAllToAllWords / members * members; }
  std::string pattern(uint32_t round, uint32_t ipu) const {
    return Pattern(round, ipu, 0, size_t{words()} * 4);
  }
  static std::string name(uint32_t ipu) { return absl::StrCat("parts", ipu); }

  void AddTo(Builder& builder) const {
    for (uint32_t ipu = 0; ipu < num_ipus; ++ipu) {
      const uint32_t here = builder.Variable(ipu, name(ipu), {v1::INT32, {words()}});
      const uint32_t there = builder.Tensor(ipu, {v1::INT32, {words()}});
      for (const auto& [input, output] : {std::pair(here, there), std::pair(there, here)}) {
        v1::Instruction* step = builder.Add(ipu);
        step->add_inputs(input);
        step->add_outputs(output);
        *step->mutable_all_to_all()->mutable_group() = group;
      }
    }
  }
  absl::Status Write(session::Device& device, uint32_t round) const {
    for (uint32_t ipu = 0; ipu < num_ipus; ++ipu)
      VPOD_RETURN_IF_ERROR(device.WriteVariable(name(ipu), pattern(round, ipu)));
    return absl::OkStatus();
  }
  absl::Status Verify(session::Device& device, uint32_t round, LinkTraffic& traffic) const {
    for (uint32_t ipu = 0; ipu < num_ipus; ++ipu)
      VPOD_RETURN_IF_ERROR(Check(device, name(ipu), pattern(round, ipu), traffic));
    return absl::OkStatus();
  }
  // That the units of this device send in an iteration.
  uint64_t BytesSent(const session::Device& device) const {
    return uint64_t{2} * words() * 4 / members * (members - 1) * num_ipus * device.local_replicas();
  }
};

}  // namespace

absl::StatusOr<LinkTest> LoadPairTraffic(session::Device& device, uint32_t num_ipus, uint32_t a,
                                         uint32_t b, const LinkTrafficOptions& options) {
  Builder builder(num_ipus, options);
  AddPair(builder, a, b, "a", "b");
  VPOD_RETURN_IF_ERROR(builder.Load(device));
  return [&device, a, b, options](uint32_t round) -> absl::StatusOr<LinkTraffic> {
    const std::string pattern = Pattern(round, a, b);
    VPOD_RETURN_IF_ERROR(device.WriteVariable("a", pattern));
    LinkTraffic traffic;
    VPOD_RETURN_IF_ERROR(Run(device, traffic));
    traffic.bytes = 2 * kTransferBytes * options.iterations;
    VPOD_RETURN_IF_ERROR(Check(device, "a", pattern, traffic));
    VPOD_RETURN_IF_ERROR(Check(device, "b", pattern, traffic));
    return traffic;
  };
}

absl::StatusOr<LinkTest> LoadOwnTraffic(session::Device& device,
                                        const LinkTrafficOptions& options) {
  Builder builder(1, options);
  const uint32_t from = builder.Variable(0, "a", {v1::INT32, {kTransferWords}});
  const uint32_t to = builder.Variable(0, "b", {v1::INT32, {kTransferWords}});
  for (const auto& [input, output] : {std::pair(from, to), std::pair(to, from)}) {
    v1::Instruction* copy = builder.Add(0);
    copy->mutable_copy();
    copy->add_inputs(input);
    copy->add_outputs(output);
  }
  VPOD_RETURN_IF_ERROR(builder.Load(device));
  return [&device, options](uint32_t round) -> absl::StatusOr<LinkTraffic> {
    const std::string pattern = Pattern(round, 0, 0);
    VPOD_RETURN_IF_ERROR(device.WriteVariable("a", pattern));
    LinkTraffic traffic;
    VPOD_RETURN_IF_ERROR(Run(device, traffic));
    traffic.bytes = 2 * kTransferBytes * options.iterations;
    VPOD_RETURN_IF_ERROR(Check(device, "b", pattern, traffic));
    return traffic;
  };
}

absl::StatusOr<LinkTest> LoadAllLinks(session::Device& device, uint32_t num_ipus,
                                      uint32_t total_replicas, const LinkTrafficOptions& options) {
  Builder builder(num_ipus, options);
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (uint32_t ipu = 0; ipu < num_ipus; ++ipu) {
    for (uint32_t other : {ipu ^ 1, ipu + 2, (ipu + 2) ^ 1}) {
      if (other > ipu && other < num_ipus) pairs.emplace_back(ipu, other);
    }
  }
  const auto name = [](uint32_t at, uint32_t to) { return absl::StrCat("at", at, "with", to); };
  for (const auto& [a, b] : pairs) AddPair(builder, a, b, name(a, b), name(b, a));
  const AllToAll all_to_all{total_replicas > 1 ? num_ipus : 0, total_replicas, {}};
  all_to_all.AddTo(builder);
  VPOD_RETURN_IF_ERROR(builder.Load(device));
  return
      [&device, pairs, name, all_to_all, options](uint32_t round) -> absl::StatusOr<LinkTraffic> {
        for (const auto& [a, b] : pairs)
          VPOD_RETURN_IF_ERROR(device.WriteVariable(name(a, b), Pattern(round, a, b)));
        VPOD_RETURN_IF_ERROR(all_to_all.Write(device, round));
        LinkTraffic traffic;
        VPOD_RETURN_IF_ERROR(Run(device, traffic));
        for (const auto& [a, b] : pairs) {
          VPOD_RETURN_IF_ERROR(Check(device, name(a, b), Pattern(round, a, b), traffic));
          VPOD_RETURN_IF_ERROR(Check(device, name(b, a), Pattern(round, a, b), traffic));
        }
        VPOD_RETURN_IF_ERROR(all_to_all.Verify(device, round, traffic));
        traffic.bytes = 2 * kTransferBytes * pairs.size() * device.local_replicas();
        traffic.bytes = options.iterations * (traffic.bytes + all_to_all.BytesSent(device));
        return traffic;
      };
}

absl::StatusOr<LinkTest> LoadBetweenInstances(session::Device& device, uint32_t num_ipus,
                                              uint32_t instances,
                                              const LinkTrafficOptions& options) {
  Builder builder(num_ipus, options);
  AllToAll all_to_all{options.single_ipu ? 1 : num_ipus, instances, {}};
  all_to_all.group.set_kind(v1::ReplicaGroup::ORTHOGONAL);
  all_to_all.group.set_size(instances);
  all_to_all.AddTo(builder);
  VPOD_RETURN_IF_ERROR(builder.Load(device));
  return [&device, all_to_all, options](uint32_t round) -> absl::StatusOr<LinkTraffic> {
    VPOD_RETURN_IF_ERROR(all_to_all.Write(device, round));
    LinkTraffic traffic;
    VPOD_RETURN_IF_ERROR(Run(device, traffic));
    VPOD_RETURN_IF_ERROR(all_to_all.Verify(device, round, traffic));
    traffic.bytes = options.iterations * all_to_all.BytesSent(device);
    return traffic;
  };
}

}  // namespace vpod::tools
