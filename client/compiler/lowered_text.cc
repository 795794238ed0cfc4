#include "client/compiler/lowered_text.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/compiler/text_form.h"
#include "client/compiler/text_reader.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/op.h"

namespace vpod::compiler {
namespace {

using program::Form;
using program::v1::Instruction;

constexpr const char* kSections[] = {"setup", "clear", "body", "reduce", "update", "finish", "end"};
static_assert(std::size(kSections) == kNumSections);
constexpr int kUpdate = static_cast<int>(Section::kUpdate);

std::string LineOf(const LoweredStream& stream) {
  return absl::StrCat("stream ", Quoted(stream.name), " to ", stream.to_device ? "device" : "host",
                      " : ", stream.type.ToString(), " on IPU ", stream.ipu,
                      stream.periodic ? " periodic" : "", "\n");
}

std::string TextOf(const LoweredTensor::Shards& shards) {
  if (shards.count <= 1) return "";
  return absl::StrCat(" shards ", shards.count, " of [", absl::StrJoin(shards.dims, ","),
                      "] strides [", absl::StrJoin(shards.strides, ","), "]");
}

std::string LineOf(uint32_t index, const LoweredTensor& tensor) {
  return absl::StrCat(
      "%", index, " : ", tensor.type.ToString(), " strides [", absl::StrJoin(tensor.strides, ","),
      "] in storage ", tensor.storage, " at ", tensor.offset,
      tensor.wide_accumulator ? " wide" : "",
      tensor.variable.empty() ? "" : absl::StrCat(" variable ", Quoted(tensor.variable)),
      TextOf(tensor.shards), "\n");
}

std::string LineOf(const program::v1::Move& move) {
  return absl::StrCat("move %", move.from_tensor(), " on IPU ", move.from_ipu(), " to %",
                      move.to_tensor(), " on IPU ", move.to_ipu());
}

std::string LinesOf(const std::string& section, const std::vector<LoweredStep>& steps) {
  std::string text = absl::StrCat(section, ":\n");
  for (const LoweredStep& step : steps)
    absl::StrAppend(&text, "  ", Print(step.instruction), " from ", Braced(step.origin), "\n");
  return text;
}

std::string LinesOf(const LoweredIpu& ipu) {
  std::string text;
  for (const program::v1::RemoteBuffer& buffer : ipu.remote_buffers)
    absl::StrAppend(&text, "remote_buffer ", Braced(buffer), "\n");
  for (uint32_t t = 0; t < ipu.tensors.size(); ++t) text += LineOf(t, ipu.tensors[t]);
  for (int s = 0; s < kNumSections; ++s) {
    const bool is_conditional = s == kUpdate && ipu.update_condition;
    if (ipu.sections[s].empty() && !is_conditional) continue;
    const std::string condition =
        is_conditional ? absl::StrCat(" if %", *ipu.update_condition) : "";
    text += LinesOf(kSections[s] + condition, ipu.sections[s]);
  }
  if (!ipu.cycle.empty()) text += LinesOf("cycle", ipu.cycle);
  for (size_t position = 0; position < ipu.positions.size(); ++position) {
    if (!ipu.positions[position].empty())
      text += LinesOf(absl::StrCat("position ", position), ipu.positions[position]);
  }
  if (!ipu.pinned.empty())
    absl::StrAppend(&text, "pinned [", absl::StrJoin(ipu.pinned, ","), "]\n");
  return text;
}

class LoweredReader {
 public:
  explicit LoweredReader(absl::string_view text) : reader_(text) {}

  absl::StatusOr<LoweredProgram> Read() {
    reader_.NextLine();
    reader_.Expect("program");
    program_.name = reader_.Text();
    reader_.Expect("device_iterations");
    program_.device_iterations = reader_.Number();
    reader_.Expect("accumulation");
    program_.accumulation = reader_.Number();
    reader_.Expect("output_period");
    const uint32_t period = reader_.Number();
    if (period >= 1 && program_.device_iterations % period == 0) {
      program_.output_period = period;
    } else {
      reader_.Fail(absl::StrCat("output_period is ", period, ", must divide the ",
                                program_.device_iterations, " device iterations"));
    }
    while (reader_.NextLine()) ReadLine();
    VPOD_RETURN_IF_ERROR(reader_.status());
    return std::move(program_);
  }

 private:
  void ReadLine() {
    if (reader_.Take("pipeline")) return ReadPipeline();
    if (reader_.Take("stream")) return ReadStream();
    if (reader_.Take("move")) return ReadMove();
    if (reader_.Take("IPU")) {
      if (reader_.Number() != program_.ipus.size())
        reader_.Fail(absl::StrCat("expected IPU ", program_.ipus.size()));
      program_.ipus.emplace_back().positions.resize(program_.pipeline.positions);
      section_ = nullptr;
      return;
    }
    if (program_.ipus.empty()) return reader_.Expected("'stream' or 'IPU'");
    LoweredIpu& ipu = program_.ipus.back();
    if (reader_.Take("remote_buffer")) return reader_.Braced(ipu.remote_buffers.emplace_back());
    for (int s = 0; s < kNumSections; ++s) {
      if (!reader_.Take(kSections[s])) continue;
      if (s == kUpdate && reader_.Take("if")) {
        ipu.update_condition = reader_.Id();
        Check(ipu, *ipu.update_condition);
      }
      reader_.Expect(":");
      section_ = &ipu.sections[s];
      return;
    }
    if (reader_.Take("pinned")) return ReadPinned(ipu);
    if (reader_.Take("cycle")) {
      reader_.Expect(":");
      section_ = &ipu.cycle;
    } else if (reader_.Take("position")) {
      ReadPosition(ipu);
    } else if (section_ == nullptr) {
      ReadTensor(ipu);
    } else {
      ReadStep(ipu);
    }
  }

  void ReadPipeline() {
    constexpr uint32_t kMostPositions = 1024;
    PipelineShape& pipeline = program_.pipeline;
    reader_.Expect("period");
    pipeline.period = reader_.Number();
    reader_.Expect("positions");
    pipeline.positions = reader_.Number();
    const bool known = !program_.ipus.empty();
    if (pipeline.period < 1 || pipeline.positions < pipeline.period || known ||
        pipeline.positions > kMostPositions) {
      pipeline.positions = 0;
      reader_.Fail(
          absl::StrCat("a pipeline comes before IPUs and has a period of 1 or more and as "
                       "many positions, up to ",
                       kMostPositions));
    }
  }

  void ReadPosition(LoweredIpu& ipu) {
    const uint32_t position = reader_.Number();
    reader_.Expect(":");
    if (position < ipu.positions.size()) {
      section_ = &ipu.positions[position];
    } else {
      reader_.Fail(absl::StrCat("there are ", ipu.positions.size(), " positions"));
    }
  }

  void ReadPinned(LoweredIpu& ipu) {
    for (const int64_t storage : reader_.Dims()) {
      if (storage >= 0 && storage < ipu.num_storages) {
        ipu.pinned.insert(static_cast<uint32_t>(storage));
      } else {
        reader_.Fail(absl::StrCat("storage ", storage, " is not defined before this line"));
      }
    }
  }

  void ReadStream() {
    LoweredStream& stream = program_.streams.emplace_back();
    stream.name = reader_.Text();
    stream.to_device = reader_.Take("to device");
    if (!stream.to_device) reader_.Expect("to host");
    reader_.Expect(":");
    stream.type = reader_.Type();
    reader_.Expect("on IPU");
    stream.ipu = reader_.Number();
    stream.periodic = reader_.Take("periodic");
  }

  void ReadTensor(LoweredIpu& ipu) {
    if (reader_.Id() != ipu.tensors.size())
      reader_.Fail(absl::StrCat("expected %", ipu.tensors.size(), " or a section"));
    LoweredTensor tensor;
    reader_.Expect(":");
    tensor.type = reader_.Type();
    reader_.Expect("strides");
    tensor.strides = reader_.Dims();
    reader_.Expect("in storage");
    tensor.storage = reader_.Number();
    reader_.Expect("at");
    tensor.offset = reader_.Integer(std::numeric_limits<uint64_t>::max());
    tensor.wide_accumulator = reader_.Take("wide");
    if (reader_.Take("variable")) tensor.variable = reader_.Text();
    if (reader_.Take("shards")) ReadShards(tensor.shards);
    if (!reader_.ok()) return;
    if (tensor.strides.size() != tensor.type.dims.size())
      return reader_.Fail(absl::StrCat("expected ", tensor.type.rank(), " strides"));
    const absl::Status strides = program::CheckStrides(Describe(tensor, /*offset=*/0));
    if (!strides.ok()) return reader_.Fail(strides.message());
    // The first tensor of a storage stands in the order of their numbers.
    if (tensor.storage > ipu.num_storages)
      return reader_.Fail(absl::StrCat("expected a storage from 0 to ", ipu.num_storages));
    if (tensor.storage == ipu.num_storages) ++ipu.num_storages;
    ipu.tensors.push_back(std::move(tensor));
  }

  void ReadShards(LoweredTensor::Shards& shards) {
    shards.count = reader_.Number();
    reader_.Expect("of");
    shards.dims = reader_.Dims();
    reader_.Expect("strides");
    shards.strides = reader_.Dims();
    if (reader_.ok() && shards.strides.size() != shards.dims.size())
      reader_.Fail(absl::StrCat("expected ", shards.dims.size(), " strides"));
  }

  void ReadStep(const LoweredIpu& ipu) {
    const std::vector<uint32_t> made = reader_.Ids();
    if (!made.empty()) reader_.Expect("=");
    LoweredStep step;
    step.instruction = reader_.Operation(Form::kLowered);
    step.instruction.mutable_outputs()->Add(made.begin(), made.end());
    reader_.Expect("from");
    reader_.Braced(step.origin);
    program::ForEachTensor(step.instruction, [&](uint32_t index) { Check(ipu, index); });
    const std::optional<uint32_t> stream = program::StreamOf(step.instruction);
    if (stream && *stream >= program_.streams.size())
      reader_.Fail(absl::StrCat("stream ", *stream, " is not defined before this line"));
    if (reader_.ok()) section_->push_back(std::move(step));
  }

  void ReadMove() {
    program::v1::Move move;
    const auto [from, from_ipu] = ReadPlace();
    reader_.Expect("to");
    const auto [to, to_ipu] = ReadPlace();
    move.set_from_tensor(from);
    move.set_from_ipu(from_ipu);
    move.set_to_tensor(to);
    move.set_to_ipu(to_ipu);
    if (!reader_.Take("at position")) return program_.moves.push_back(std::move(move));
    const uint32_t position = reader_.Number();
    if (position >= program_.pipeline.positions)
      reader_.Fail(absl::StrCat("there are ", program_.pipeline.positions, " positions"));
    program_.pipeline.moves.push_back({std::move(move), position});
  }

  // A tensor and its IPU.
  std::pair<uint32_t, uint32_t> ReadPlace() {
    const uint32_t tensor = reader_.Id();
    reader_.Expect("on IPU");
    const uint32_t ipu = reader_.Number();
    if (ipu < program_.ipus.size()) {
      Check(program_.ipus[ipu], tensor);
    } else {
      reader_.Fail(absl::StrCat("IPU ", ipu, " is not defined before this line"));
    }
    return {tensor, ipu};
  }

  void Check(const LoweredIpu& ipu, uint32_t tensor) {
    if (tensor >= ipu.tensors.size())
      reader_.Fail(absl::StrCat("%", tensor, " is not defined before this line"));
  }

  TextReader reader_;
  LoweredProgram program_;
  std::vector<LoweredStep>* section_ = nullptr;  // that the next line belongs to, if it is a step
};

}  // namespace

std::string Print(const LoweredProgram& program) {
  std::string text = absl::StrCat("program ", Quoted(program.name), " device_iterations ",
                                  program.device_iterations, " accumulation ", program.accumulation,
                                  " output_period ", program.output_period, "\n");
  const PipelineShape& pipeline = program.pipeline;
  if (pipeline.period > 0) {
    absl::StrAppend(&text, "pipeline period ", pipeline.period, " positions ", pipeline.positions,
                    "\n");
  }
  for (const LoweredStream& stream : program.streams) text += LineOf(stream);
  for (size_t i = 0; i < program.ipus.size(); ++i)
    absl::StrAppend(&text, "IPU ", i, "\n", LinesOf(program.ipus[i]));
  for (const program::v1::Move& move : program.moves) absl::StrAppend(&text, LineOf(move), "\n");
  for (const PipelineMove& move : pipeline.moves)
    absl::StrAppend(&text, LineOf(move.move), " at position ", move.position, "\n");
  return text;
}

absl::StatusOr<LoweredProgram> ReadLowered(absl::string_view text) {
  return LoweredReader(text).Read();
}

}  // namespace vpod::compiler
