#include "device/program/executable.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "device/base/parsed_size.h"
#include "device/base/sha256.h"
#include "device/base/status.h"
#include "device/program/blocks.h"
#include "device/program/ops/collective.h"
#include "device/program/origins.h"

namespace vpod::program {
namespace {

constexpr absl::string_view kMagic("VIPUEXE\x02", 8);

std::string CanonicalEncoding(const v1::Executable& executable) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  executable.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

absl::Status CheckBytes(size_t bytes, const Limits& limits) {
  if (bytes <= limits.executable_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the executable has ", bytes, " bytes, at most ",
                                                 limits.executable_bytes, " are accepted"));
}

absl::Status CheckOriginBytes(size_t bytes, const Limits& limits) {
  if (bytes <= limits.origin_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the table of origins has ", bytes,
                                                 " bytes, at most ", limits.origin_bytes,
                                                 " are accepted"));
}

// The parsed size of a message of this type; `what` names it.
absl::StatusOr<uint64_t> ParsedSizeOf(const google::protobuf::Descriptor& type,
                                      absl::string_view what, absl::string_view bytes,
                                      const Limits& limits) {
  const auto size = base::ParsedSize(type, bytes, limits.parsed_bytes);
  if (size.ok()) return *size;
  return absl::InvalidArgumentError(absl::IsResourceExhausted(size.status())
                                        ? absl::StrCat(what, " would take more than ",
                                                       limits.parsed_bytes >> 20,
                                                       " MiB of host memory")
                                        : absl::StrCat(what, " is truncated or corrupt"));
}

const std::string& NameOf(const HostTensor& tensor) { return tensor.name; }
template <class Named>
const std::string& NameOf(const Named& item) {
  return item.name();
}

template <class All>
absl::StatusOr<uint32_t> FindByName(absl::string_view kind, absl::string_view name,
                                    const All& all) {
  uint32_t index = 0;
  for (const auto& item : all) {
    if (NameOf(item) == name) return index;
    ++index;
  }
  return absl::NotFoundError(absl::StrCat(
      "no ", kind, " '", name, "'; there are ",
      absl::StrJoin(all, ", ",
                    [](std::string* out, const auto& item) { out->append(NameOf(item)); })));
}

// The host's view of a sharded variable or remote buffer.
template <class Sharded>
void SetWhole(const Sharded& sharded, HostTensor& tensor) {
  if (sharded.shards() <= 1) return;
  tensor.shards = sharded.shards();
  tensor.whole = {tensor.type.type, {sharded.host_dims().begin(), sharded.host_dims().end()}};
  tensor.whole_strides.assign(sharded.host_strides().begin(), sharded.host_strides().end());
}

std::vector<HostTensor> HostTensors(const v1::Executable& executable) {
  std::vector<HostTensor> tensors;
  for (const v1::Variable& variable : executable.variables()) {
    const v1::Tensor& tensor = executable.ipus(static_cast<int>(variable.ipu()))
                                   .tensors(static_cast<int>(variable.tensor()));
    tensors.push_back({variable.name(),
                       variable.ipu(),
                       TypeOf(tensor),
                       false,
                       tensor.offset(),
                       {tensor.strides().begin(), tensor.strides().end()}});
    SetWhole(variable, tensors.back());
  }
  for (int i = 0; i < executable.ipus_size(); ++i) {
    const v1::Ipu& ipu = executable.ipus(i);
    for (int b = 0; b < ipu.remote_buffers_size(); ++b) {
      const v1::RemoteBuffer& buffer = ipu.remote_buffers(b);
      if (buffer.scratch()) continue;
      HostTensor tensor{.name = buffer.name(),
                        .ipu = static_cast<uint32_t>(i),
                        .type = TypeOf(buffer),
                        .remote = true,
                        .offset = RemoteOffset(ipu, static_cast<uint32_t>(b))};
      if (buffer.shards() > 1) {
        tensor.type.dims = {tensor.type.elements() * buffer.rows()};
        SetWhole(buffer, tensor);
      } else if (buffer.host_dims().empty()) {
        tensor.type.dims.insert(tensor.type.dims.begin(), buffer.rows());
      } else {
        tensor.type.dims.assign(buffer.host_dims().begin(), buffer.host_dims().end());
        tensor.strides.assign(buffer.host_strides().begin(), buffer.host_strides().end());
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

// How often each function executes when `function` does once. `for_each_call(instruction, visit)`
// tells what an instruction executes.
template <class ForEach>
std::vector<uint64_t> CountExecutions(const v1::Ipu& ipu, uint32_t function,
                                      const ForEach& for_each_call) {
  const auto add = [](uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; };
  const auto multiply = [](uint64_t a, uint64_t b) {
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
  };
  std::vector<uint64_t> executions(function + 1);
  executions[function] = 1;
  // Callers come after what they call: each is counted before its own calls are.
  for (size_t f = function + 1; f-- > 0;) {
    if (executions[f] == 0) continue;
    for (const v1::Instruction& instruction : ipu.functions(static_cast<int>(f)).instructions()) {
      for_each_call(instruction, [&](uint32_t callee, uint64_t rounds) {
        executions[callee] = add(executions[callee], multiply(executions[f], rounds));
      });
    }
  }
  return executions;
}

}  // namespace

std::vector<uint64_t> Executions(const v1::Ipu& ipu, uint32_t function) {
  return CountExecutions(ipu, function, [](const v1::Instruction& instruction, const auto& visit) {
    ForEachCall(instruction, visit);
  });
}

std::vector<uint64_t> PlannedExecutions(const v1::Ipu& ipu, uint32_t function) {
  return CountExecutions(ipu, function, [](const v1::Instruction& instruction, const auto& visit) {
    ForEachPlannedCall(instruction, visit);
  });
}

uint64_t TransfersOf(const Executable& executable, uint32_t program, uint32_t stream) {
  const uint32_t ipu = executable.proto().streams(static_cast<int>(stream)).ipu();
  uint64_t transfers = 0;
  ForEachInstruction(executable.proto().ipus(static_cast<int>(ipu)),
                     executable.EntryOf(program, ipu),
                     [&](const v1::Instruction& instruction, uint64_t times) {
                       if (StreamOf(instruction) == stream) transfers += times;
                     });
  return transfers;
}

uint64_t RowBytes(const v1::RemoteBuffer& buffer) {
  uint64_t bytes = buffer.wide_accumulator() ? sizeof(double) : SizeOf(buffer.type());
  for (int64_t dim : buffer.dims()) bytes *= static_cast<uint64_t>(dim);
  return bytes;
}

uint64_t RemoteOffset(const v1::Ipu& ipu, uint32_t buffer) {
  uint64_t offset = 0;
  for (uint32_t b = 0; b < buffer; ++b) {
    const v1::RemoteBuffer& before = ipu.remote_buffers(static_cast<int>(b));
    offset += (RowBytes(before) * before.rows() + 63) / 64 * 64;
  }
  return offset;
}

std::optional<uint32_t> StreamOf(const v1::Instruction& instruction) {
  if (instruction.has_stream_in()) return instruction.stream_in().stream();
  if (instruction.has_stream_out()) return instruction.stream_out().stream();
  return std::nullopt;
}

std::string Serialize(const v1::Executable& executable) {
  return absl::StrCat(kMagic, CanonicalEncoding(executable));
}

absl::StatusOr<uint64_t> Executable::ParsedSize(absl::string_view bytes, const Limits& limits,
                                                absl::string_view origins) {
  uint64_t executable_size = 0;
  if (absl::ConsumePrefix(&bytes, kMagic)) {
    VPOD_ASSIGN_OR_RETURN(executable_size, ParsedSizeOf(*v1::Executable::descriptor(),
                                                        "the executable", bytes, limits));
  }
  VPOD_ASSIGN_OR_RETURN(
      const uint64_t origins_size,
      ParsedSizeOf(*v1::Origins::descriptor(), "the table of origins", origins, limits));
  return executable_size + origins_size;
}

absl::StatusOr<std::shared_ptr<const Executable>> Executable::Parse(absl::string_view bytes,
                                                                    const Limits& limits,
                                                                    absl::string_view origins,
                                                                    const Reserve& reserve) {
  VPOD_RETURN_IF_ERROR(CheckBytes(bytes.size(), limits));
  VPOD_RETURN_IF_ERROR(CheckOriginBytes(origins.size(), limits));
  if (!absl::StartsWith(bytes, kMagic)) {
    return absl::InvalidArgumentError(
        "not an executable of format 2 (the first eight bytes are wrong)");
  }
  VPOD_RETURN_IF_ERROR(ParsedSize(bytes, limits, origins).status());
  bytes.remove_prefix(kMagic.size());
  v1::Executable text;
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               static_cast<int>(bytes.size()));
  input.SetRecursionLimit(16);
  if (!text.ParseFromCodedStream(&input) || !input.ConsumedEntireMessage()) {
    return absl::InvalidArgumentError("the executable is truncated or corrupt");
  }
  v1::Origins table;
  if (!table.ParseFromArray(origins.data(), static_cast<int>(origins.size())))
    return absl::InvalidArgumentError("the table of origins is truncated or corrupt");
  VPOD_ASSIGN_OR_RETURN(Texts texts, Check(std::move(text), limits, table, reserve));
  // Fields that this version does not know would be encoded again as they came; without them the
  // bytes differ.
  texts.proto.DiscardUnknownFields();
  if (texts.source) texts.source->DiscardUnknownFields();
  table.DiscardUnknownFields();
  const std::string canonical = CanonicalEncoding(texts.source ? *texts.source : texts.proto);
  if (canonical != bytes) {
    return absl::InvalidArgumentError(
        "the executable is not in canonical form or has fields of a newer version");
  }
  return std::shared_ptr<const Executable>(
      new Executable(std::move(texts), canonical, std::move(table)));
}

absl::StatusOr<std::shared_ptr<const Executable>> Executable::Make(v1::Executable text,
                                                                   const Limits& limits,
                                                                   v1::Origins origins) {
  VPOD_RETURN_IF_ERROR(CheckOriginBytes(origins.ByteSizeLong(), limits));
  const std::string canonical = CanonicalEncoding(text);
  VPOD_ASSIGN_OR_RETURN(Texts texts, Check(std::move(text), limits, origins, nullptr));
  VPOD_RETURN_IF_ERROR(CheckBytes(kMagic.size() + canonical.size(), limits));
  return std::shared_ptr<const Executable>(
      new Executable(std::move(texts), canonical, std::move(origins)));
}

absl::StatusOr<Executable::Texts> Executable::Check(v1::Executable text, const Limits& limits,
                                                    const v1::Origins& origins,
                                                    const Reserve& reserve) {
  Texts texts;
  if (HasBlocks(text)) {
    VPOD_ASSIGN_OR_RETURN(const uint64_t bytes, WrittenOutBytes(text, limits));
    if (reserve) VPOD_RETURN_IF_ERROR(reserve(bytes));
    texts.proto = WriteOut(text);
    texts.source = std::move(text);
  } else {
    texts.proto = std::move(text);
  }
  const absl::Status valid = Validate(texts.proto, limits);
  if (!valid.ok()) {
    // The numbers of instructions are not those of the source.
    return absl::Status(valid.code(),
                        absl::StrCat(valid.message(), texts.source ? " (blocks written out)" : ""));
  }
  VPOD_RETURN_IF_ERROR(CheckOrigins(origins, texts.proto));
  return texts;
}

Executable::Executable(Texts texts, absl::string_view canonical, v1::Origins origins)
    : proto_(std::move(texts.proto)),
      source_(std::move(texts.source)),
      origins_(std::move(origins)),
      hash_(base::Sha256Hex(canonical)),
      host_tensors_(HostTensors(proto_)) {
  for (int program = 0; program < proto_.programs_size(); ++program) {
    bool collective = false;
    std::set<uint32_t> streams;
    for (uint32_t ipu = 0; ipu < ipus_per_replica(); ++ipu) {
      ForEachInstruction(proto_.ipus(static_cast<int>(ipu)), EntryOf(program, ipu),
                         [&](const v1::Instruction& instruction, uint64_t) {
                           collective = collective || CollectiveOf(instruction).has_value();
                           if (const auto stream = StreamOf(instruction)) streams.insert(*stream);
                         });
    }
    has_collectives_.push_back(collective);
    streams_.push_back(std::move(streams));
  }
}

std::string Executable::Bytes() const { return Serialize(source()); }

std::shared_ptr<const Executable> Executable::WithMemoryAdvice(std::string advice) const {
  auto copy = std::make_shared<Executable>(*this);
  copy->origins_.set_memory_advice(std::move(advice));
  return copy;
}

const v1::Origin* Executable::OriginOf(uint32_t ipu, size_t function, size_t instruction) const {
  if (origins_.ipus().empty()) return nullptr;
  const uint32_t origin = origins_.ipus(static_cast<int>(ipu))
                              .functions(static_cast<int>(function))
                              .instructions(static_cast<int>(instruction));
  return origin == 0 ? nullptr : &origins_.origins(static_cast<int>(origin) - 1);
}

absl::StatusOr<const HostTensor*> Executable::FindVariable(absl::string_view name) const {
  VPOD_ASSIGN_OR_RETURN(uint32_t index, FindByName("variable", name, host_tensors_));
  return &host_tensors_[index];
}

absl::StatusOr<uint32_t> Executable::FindProgram(absl::string_view name) const {
  return FindByName("program", name, proto_.programs());
}

absl::StatusOr<uint32_t> Executable::FindStream(absl::string_view name) const {
  return FindByName("stream", name, proto_.streams());
}

}  // namespace vpod::program
