#include "tools/link_test/link_traffic.h"

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/executable.h"

namespace vpod::tools {
namespace {

namespace v1 = program::v1;
using Clock = std::chrono::steady_clock;

constexpr int64_t kSumElements = 64 * 1024;
constexpr int64_t kMatrixSize = 128;

// An executable of one program "traffic" that repeats its body on every IPU.
class Builder {
 public:
  Builder(uint32_t num_ipus, const LinkTrafficOptions& options) {
    executable_.set_ipus_per_replica(num_ipus);
    v1::Program* program = executable_.add_programs();
    program->set_name("traffic");
    for (uint32_t ipu = 0; ipu < num_ipus; ++ipu) {
      executable_.add_ipus();
      v1::Repeat* repeat = program->add_blocks()->add_instructions()->mutable_repeat();
      repeat->set_count(options.iterations);
      bodies_.push_back(repeat);
      if (options.high_power) Multiply(ipu);
    }
  }

  // A tensor of 32-bit elements that the host reads and writes as `name`; its index.
  uint32_t Variable(uint32_t ipu, const std::string& name, v1::DataType type,
                    const std::vector<int64_t>& dims) {
    const uint32_t tensor = Tensor(ipu, type, dims);
    v1::Variable* variable = executable_.add_variables();
    variable->set_name(name);
    variable->set_ipu(ipu);
    variable->set_tensor(tensor);
    return tensor;
  }
  uint32_t Tensor(uint32_t ipu, v1::DataType type, const std::vector<int64_t>& dims) {
    v1::Ipu* description = executable_.mutable_ipus(static_cast<int>(ipu));
    v1::Tensor* tensor = description->add_tensors();
    tensor->set_type(type);
    tensor->set_offset(description->arena_bytes());
    uint64_t bytes = 4;
    for (int64_t dim : dims) {
      tensor->add_dims(dim);
      bytes *= static_cast<uint64_t>(dim);
    }
    description->set_arena_bytes(description->arena_bytes() + (bytes + 63) / 64 * 64);
    return static_cast<uint32_t>(description->tensors_size() - 1);
  }
  void Copy(uint32_t from, uint32_t from_tensor, uint32_t to, uint32_t to_tensor) {
    v1::Send* send = Add(from)->mutable_send();
    send->set_tensor(from_tensor);
    send->set_to_ipu(to);
    send->set_channel(channels_);
    v1::Receive* receive = Add(to)->mutable_receive();
    receive->set_tensor(to_tensor);
    receive->set_from_ipu(from);
    receive->set_channel(channels_++);
  }
  v1::Instruction* Add(uint32_t ipu) { return bodies_[ipu]->add_body(); }
  std::string Serialized() {
    for (v1::Block& block : *executable_.mutable_programs(0)->mutable_blocks()) {
      if (block.instructions(0).repeat().body().empty()) block.clear_instructions();  // it idles
    }
    return program::Serialize(executable_);
  }

 private:
  void Multiply(uint32_t ipu) {
    uint32_t matrices[3];
    for (uint32_t& matrix : matrices) matrix = Tensor(ipu, v1::FLOAT32, {kMatrixSize, kMatrixSize});
    v1::MatMul* op = Add(ipu)->mutable_mat_mul();
    op->set_a(matrices[0]);
    op->set_b(matrices[1]);
    op->set_output(matrices[2]);
  }

  v1::Executable executable_;
  std::vector<v1::Repeat*> bodies_;
  uint32_t channels_ = 0;
};

constexpr int64_t kTransferWords = kTransferBytes / 4;

std::string Pattern(uint32_t seed) {
  std::string pattern(kTransferBytes, '\0');
  uint64_t state = 0x9e3779b97f4a7c15 + seed;
  for (size_t at = 0; at < pattern.size(); at += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(pattern.data() + at, &state, sizeof(state));
  }
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

// Adds a sum over all replicas to the body of an IPU: of "addend<ipu>" into "sum<ipu>".
void AddSum(Builder& builder, uint32_t ipu) {
  const uint32_t addend =
      builder.Variable(ipu, absl::StrCat("addend", ipu), v1::FLOAT32, {kSumElements});
  const uint32_t sum = builder.Variable(ipu, absl::StrCat("sum", ipu), v1::FLOAT32, {kSumElements});
  v1::AllReduce* op = builder.Add(ipu)->mutable_all_reduce();
  op->set_operator_(v1::SUM);
  op->add_inputs(addend);
  op->add_outputs(sum);
}

// Element i of every addend is i mod 97 + 1, so that element i of the sum over n replicas is n
// times that, exactly.
std::string Addends(uint32_t factor) {
  std::string bytes(static_cast<size_t>(kSumElements) * 4, '\0');
  for (int64_t i = 0; i < kSumElements; ++i) {
    const auto value = static_cast<float>((i % 97 + 1) * factor);
    std::memcpy(bytes.data() + i * 4, &value, 4);
  }
  return bytes;
}

// Bytes that the units of this device send in a sum, in both directions of the ring.
uint64_t SumBytes(const session::Device& device, uint32_t num_ipus, uint32_t total_replicas) {
  if (total_replicas < 2) return 0;
  const uint64_t bytes = static_cast<uint64_t>(kSumElements) * 4;
  return 2 * bytes * (total_replicas - 1) / total_replicas * num_ipus * device.local_replicas();
}

}  // namespace

absl::StatusOr<LinkTraffic> RunPairTraffic(session::Device& device, uint32_t num_ipus, uint32_t a,
                                           uint32_t b, const LinkTrafficOptions& options) {
  Builder builder(num_ipus, options);
  const uint32_t there = builder.Variable(a, "a", v1::INT32, {kTransferWords});
  const uint32_t back = builder.Variable(b, "b", v1::INT32, {kTransferWords});
  builder.Copy(a, there, b, back);
  builder.Copy(b, back, a, there);
  VPOD_RETURN_IF_ERROR(device.Load(builder.Serialized()));
  const std::string pattern = Pattern(a * 64 + b);
  VPOD_RETURN_IF_ERROR(device.WriteVariable("a", pattern));
  LinkTraffic traffic;
  VPOD_RETURN_IF_ERROR(Run(device, traffic));
  traffic.bytes = 2 * kTransferBytes * options.iterations;
  VPOD_RETURN_IF_ERROR(Check(device, "a", pattern, traffic));
  VPOD_RETURN_IF_ERROR(Check(device, "b", pattern, traffic));
  return traffic;
}

absl::StatusOr<LinkTraffic> RunOwnTraffic(session::Device& device,
                                          const LinkTrafficOptions& options) {
  Builder builder(1, options);
  const uint32_t from = builder.Variable(0, "a", v1::INT32, {kTransferWords});
  const uint32_t to = builder.Variable(0, "b", v1::INT32, {kTransferWords});
  for (const auto& [input, output] : {std::pair(from, to), std::pair(to, from)}) {
    v1::Copy* copy = builder.Add(0)->mutable_copy();
    copy->set_input(input);
    copy->set_output(output);
  }
  VPOD_RETURN_IF_ERROR(device.Load(builder.Serialized()));
  const std::string pattern = Pattern(0);
  VPOD_RETURN_IF_ERROR(device.WriteVariable("a", pattern));
  LinkTraffic traffic;
  VPOD_RETURN_IF_ERROR(Run(device, traffic));
  traffic.bytes = 2 * kTransferBytes * options.iterations;
  VPOD_RETURN_IF_ERROR(Check(device, "b", pattern, traffic));
  return traffic;
}

absl::StatusOr<LinkTraffic> RunAllLinks(session::Device& device, uint32_t num_ipus,
                                        uint32_t total_replicas,
                                        const LinkTrafficOptions& options) {
  Builder builder(num_ipus, options);
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // sender, receiver
  for (uint32_t ipu = 0; ipu < num_ipus; ++ipu) {
    for (uint32_t other : {ipu ^ 1, ipu + 2, (ipu + 2) ^ 1}) {
      if (other >= num_ipus) continue;
      pairs.emplace_back(ipu, other);
      if (other != (ipu ^ 1)) pairs.emplace_back(other, ipu);
    }
  }
  std::vector<uint32_t> data;
  for (uint32_t ipu = 0; ipu < num_ipus; ++ipu)
    data.push_back(builder.Variable(ipu, absl::StrCat("data", ipu), v1::INT32, {kTransferWords}));
  for (const auto& [from, to] : pairs) {
    const std::string name = absl::StrCat("from", from, "to", to);
    builder.Copy(from, data[from], to, builder.Variable(to, name, v1::INT32, {kTransferWords}));
  }
  if (total_replicas > 1) {
    for (uint32_t ipu = 0; ipu < num_ipus; ++ipu) AddSum(builder, ipu);
  }
  VPOD_RETURN_IF_ERROR(device.Load(builder.Serialized()));
  for (uint32_t ipu = 0; ipu < num_ipus; ++ipu) {
    VPOD_RETURN_IF_ERROR(device.WriteVariable(absl::StrCat("data", ipu), Pattern(ipu)));
    if (total_replicas > 1)
      VPOD_RETURN_IF_ERROR(device.WriteVariable(absl::StrCat("addend", ipu), Addends(1)));
  }
  LinkTraffic traffic;
  VPOD_RETURN_IF_ERROR(Run(device, traffic));
  for (const auto& [from, to] : pairs)
    VPOD_RETURN_IF_ERROR(
        Check(device, absl::StrCat("from", from, "to", to), Pattern(from), traffic));
  for (uint32_t ipu = 0; total_replicas > 1 && ipu < num_ipus; ++ipu)
    VPOD_RETURN_IF_ERROR(Check(device, absl::StrCat("sum", ipu), Addends(total_replicas), traffic));
  traffic.bytes = options.iterations * (pairs.size() * kTransferBytes * device.local_replicas() +
                                        SumBytes(device, num_ipus, total_replicas));
  return traffic;
}

absl::StatusOr<LinkTraffic> RunSums(session::Device& device, uint32_t num_ipus,
                                    uint32_t total_replicas, const LinkTrafficOptions& options) {
  Builder builder(num_ipus, options);
  for (uint32_t ipu = 0; ipu < num_ipus; ++ipu) AddSum(builder, ipu);
  VPOD_RETURN_IF_ERROR(device.Load(builder.Serialized()));
  for (uint32_t ipu = 0; ipu < num_ipus; ++ipu)
    VPOD_RETURN_IF_ERROR(device.WriteVariable(absl::StrCat("addend", ipu), Addends(1)));
  LinkTraffic traffic;
  VPOD_RETURN_IF_ERROR(Run(device, traffic));
  for (uint32_t ipu = 0; ipu < num_ipus; ++ipu)
    VPOD_RETURN_IF_ERROR(Check(device, absl::StrCat("sum", ipu), Addends(total_replicas), traffic));
  traffic.bytes = options.iterations * SumBytes(device, num_ipus, total_replicas);
  return traffic;
}

}  // namespace vpod::tools
