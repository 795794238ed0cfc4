// Runs many small graphs on the IPUModel, so that other programs can compare their results.
//
//   run_cases CASES DATA RESULTS RESULT_DATA
//
// CASES is a JSON list. Each case has "steps", which append values to the case's list of values:
//   {"input": TYPE, "dims": [...], "at": OFFSET}       elements are in DATA from this byte
//   {"variable": TYPE, "dims": [...], "at": OFFSET}    float32 elements are in DATA
//   {"constant": TYPE, "dims": [...], "value": NUMBER}
//   {"op": INSTRUCTION, "inputs": [VALUE, ...]}        as protobuf's JSON; appends its outputs
//   {"reshape": [...], "inputs": [VALUE]}
//   {"dropout": PROBABILITY, "inputs": [VALUE]}
//   {"adaptive_average_pool": [...], "inputs": [VALUE]}
//   {"adaptive_max_pool": [...], "inputs": [VALUE]}    appends output and indices
//   {"resize": [...], "interpolation": NUMBER of the enumeration, "align_corners": BOOL,
//    "inputs": [VALUE]}
//   {"aten": OPERATOR, "arguments": [ARGUMENT, ...]}   appends its outputs; an argument is null, a
//       number, true or false, a string, a list of integers, {"number": "inf" …}, {"tensor":
//       VALUE},
//       {"numbers": [NUMBER, ...]} or {"tensors": [VALUE or null, ...]}
//   {"gradients": [VALUE, ...], "loss": VALUE}
// and "results", the values that are wanted. A case with "train" runs a training program of that
// many steps instead, and its results are variables:
//   {"loss": VALUE, "steps": N, "accumulation": N, "sgd" or "adam": {hyper-parameters},
//    "loss_scale": NUMBER}
// DATA has an input's elements for each micro-batch of a step. The loss scale is automatic, may be
// missing, and is the last result.
// RESULTS has "kernels", the names of all ops that compute, "aten", [name, parameters] of each
// operator that client/aten lowers, and "cases", with for each case
//   {"results": [{"type": ..., "dims": [...], "at": OFFSET}, ...], "ops": [NAME, ...]}
// whose elements are in RESULT_DATA, with the ops of graph and executable, or {"error": MESSAGE}.
#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/aten/lower.h"
#include "client/compiler/compiler.h"
#include "client/nn/resize.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/program/op.h"

namespace vpod {
namespace {

using graph::Graph;
using graph::Tensor;
using nlohmann::json;
using program::TensorType;
namespace v1 = program::v1;

std::string NameOf(const char* kind, size_t number) { return absl::StrCat(kind, number); }

// One case while it is built and run.
class Case {
 public:
  // Elements are read from `data` and appended to `result_data`.
  Case(const json& text, const std::string& data, std::string& result_data)
      : text_(text), data_(data), result_data_(result_data) {}

  absl::StatusOr<json> Run() {
    for (const json& step : text_.at("steps")) {
      VPOD_RETURN_IF_ERROR(Add(step));
      VPOD_RETURN_IF_ERROR(graph_.status());
    }
    return text_.contains("train") ? Train() : Infer();
  }

 private:
  struct Input {
    std::string name;
    TensorType type;
    size_t at;
  };

  absl::Status Add(const json& step) {
    if (step.contains("op")) return AddOp(step);
    if (step.contains("reshape")) {
      values_.push_back(
          graph_.Reshape(Operands(step.at("inputs"))[0], step.at("reshape").get<program::Dims>()));
    } else if (step.contains("dropout")) {
      values_.push_back(graph_.Dropout(Operands(step.at("inputs"))[0], step.at("dropout")));
    } else if (step.contains("adaptive_average_pool")) {
      values_.push_back(graph_.AdaptiveAveragePool(
          Operands(step.at("inputs"))[0], step.at("adaptive_average_pool").get<program::Dims>()));
    } else if (step.contains("adaptive_max_pool")) {
      const auto [output, indices] = graph_.AdaptiveMaxPool(
          Operands(step.at("inputs"))[0], step.at("adaptive_max_pool").get<program::Dims>());
      values_.push_back(output);
      values_.push_back(indices);
    } else if (step.contains("resize")) {
      const nn::ResizeOptions options{
          .interpolation = static_cast<nn::Interpolation>(step.at("interpolation").get<int>()),
          .align_corners = step.at("align_corners")};
      values_.push_back(nn::Resize(graph_, Operands(step.at("inputs"))[0],
                                   step.at("resize").get<program::Dims>(), options));
    } else if (step.contains("gradients")) {
      const std::vector<Tensor> wanted = Operands(step.at("gradients"));
      const auto gradients = graph_.Gradients(values_.at(step.at("loss")), wanted);
      for (size_t i = 0; i < gradients.size() && graph_.status().ok(); ++i) {
        // PyTorch gives zeros where a gradient is absent.
        values_.push_back(gradients[i].valid() ? gradients[i]
                                               : graph_.Constant(graph_.TypeOf(wanted[i]), 0));
      }
    } else if (step.contains("constant")) {
      VPOD_ASSIGN_OR_RETURN(const TensorType type, Type(step, "constant"));
      values_.push_back(graph_.Constant(type, step.at("value").get<double>()));
    } else if (step.contains("variable")) {
      return AddVariable(step);
    } else if (step.contains("aten")) {
      return AddAten(step);
    } else {
      VPOD_ASSIGN_OR_RETURN(const TensorType type, Type(step, "input"));
      inputs_.push_back({NameOf("input", values_.size()), type, step.at("at")});
      values_.push_back(graph_.Input(inputs_.back().name, type));
    }
    return absl::OkStatus();
  }

  absl::Status AddOp(const json& step) {
    v1::Instruction instruction;
    const auto parsed =
        google::protobuf::util::JsonStringToMessage(step.at("op").dump(), &instruction);
    if (!parsed.ok()) return absl::InvalidArgumentError(std::string(parsed.message()));
    const auto outputs = graph_.AddOperation(std::move(instruction), Operands(step.at("inputs")));
    values_.insert(values_.end(), outputs.begin(), outputs.end());
    return absl::OkStatus();
  }

  absl::Status AddAten(const json& step) {
    std::vector<aten::Argument> arguments;
    for (const json& argument : step.at("arguments")) arguments.push_back(Decoded(argument));
    VPOD_ASSIGN_OR_RETURN(
        const auto outputs,
        aten::Lower(graph_, step.at("aten").get<std::string>(), std::move(arguments)));
    values_.insert(values_.end(), outputs.begin(), outputs.end());
    return absl::OkStatus();
  }

  aten::Argument Decoded(const json& argument) const {
    if (argument.is_null()) return {};
    if (argument.is_boolean()) return argument.get<bool>();
    if (argument.is_number_integer()) return argument.get<int64_t>();
    if (argument.is_number()) return argument.get<double>();
    if (argument.is_string()) return argument.get<std::string>();
    if (argument.is_array()) return argument.get<program::Dims>();
    if (argument.contains("number")) return std::stod(argument.at("number").get<std::string>());
    if (argument.contains("tensor")) return values_.at(argument.at("tensor"));
    if (argument.contains("numbers")) return argument.at("numbers").get<std::vector<double>>();
    std::vector<Tensor> tensors;
    for (const json& value : argument.at("tensors"))
      tensors.push_back(value.is_null() ? Tensor{} : values_.at(value));
    return tensors;
  }

  absl::Status AddVariable(const json& step) {
    VPOD_ASSIGN_OR_RETURN(const TensorType type, Type(step, "variable"));
    std::vector<float> initial(static_cast<size_t>(type.elements()));
    VPOD_RETURN_IF_ERROR(Read(step.at("at"), initial.data(), initial.size() * sizeof(initial[0])));
    values_.push_back(
        graph_.Variable(NameOf("variable", values_.size()), type, std::move(initial)));
    return absl::OkStatus();
  }

  std::vector<Tensor> Operands(const json& indices) const {
    std::vector<Tensor> operands;
    for (const json& index : indices) operands.push_back(values_.at(index));
    return operands;
  }

  static absl::StatusOr<TensorType> Type(const json& step, const char* kind) {
    TensorType type{v1::DATA_TYPE_UNSPECIFIED, step.at("dims").get<program::Dims>()};
    const std::string name = step.at(kind);
    if (!v1::DataType_Parse(name, &type.type))
      return absl::InvalidArgumentError(absl::StrCat("there is no type ", name));
    return type;
  }

  absl::Status Read(size_t at, void* to, size_t bytes) const {
    if (at > data_.size() || bytes > data_.size() - at)
      return absl::InvalidArgumentError("the data end before the elements of an input");
    if (bytes > 0) std::memcpy(to, data_.data() + at, bytes);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<session::Session>> Open(const compiler::ProgramSpec& spec) {
    VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                          compiler::Compile(graph_, {.programs = {spec}}));
    for (const v1::Function& function : compiled.executable->proto().ipus(0).functions()) {
      for (const v1::Instruction& instruction : function.instructions())
        ops_.insert(program::OpName(instruction.attributes_case()));
    }
    for (const graph::Node& node : graph_.nodes())
      ops_.insert(program::OpName(node.instruction.attributes_case()));
    VPOD_ASSIGN_OR_RETURN(auto device, session::CreateIpuModel({.compute_threads = 2}));
    return session::Session::Create(std::move(device), compiled);
  }

  absl::Status WriteInputs(session::Session& session) const {
    for (const Input& input : inputs_) {
      const auto bytes = session.StreamBytes(input.name, 0);
      if (absl::IsNotFound(bytes.status())) continue;  // only its shape matters
      VPOD_RETURN_IF_ERROR(bytes.status());
      VPOD_RETURN_IF_ERROR(Read(input.at, bytes->data(), bytes->size()));
    }
    return absl::OkStatus();
  }

  json Result(const TensorType& type, const void* elements) {
    const size_t at = result_data_.size();
    result_data_.append(static_cast<const char*>(elements), type.bytes());
    return {{"type", v1::DataType_Name(type.type)}, {"dims", type.dims}, {"at", at}};
  }

  absl::StatusOr<json> Infer() {
    const std::vector<Tensor> wanted = Operands(text_.at("results"));
    const auto is_empty = [&](Tensor value) { return graph_.TypeOf(value).empty(); };
    for (size_t i = 0; i < wanted.size(); ++i) {
      // A value without elements cannot be sent; its sum has to be computed from it.
      const Tensor sent =
          is_empty(wanted[i]) ? graph_.Sum(graph_.Cast(wanted[i], v1::FLOAT32)) : wanted[i];
      graph_.Output(NameOf("result", i), sent);
    }
    VPOD_ASSIGN_OR_RETURN(auto session, Open({.name = "infer"}));
    VPOD_RETURN_IF_ERROR(WriteInputs(*session));
    VPOD_RETURN_IF_ERROR(session->Run("infer").status());
    json results = json::array();
    for (size_t i = 0; i < wanted.size(); ++i) {
      const TensorType& type = graph_.TypeOf(wanted[i]);
      if (is_empty(wanted[i])) {
        VPOD_ASSIGN_OR_RETURN(const auto sum, session->Stream<float>(NameOf("result", i), 0));
        if (sum[0] != 0)
          return absl::InternalError(absl::StrCat("no elements have the sum ", sum[0]));
        results.push_back(Result(type, sum.data()));
        continue;
      }
      VPOD_ASSIGN_OR_RETURN(const auto bytes, session->StreamBytes(NameOf("result", i), 0));
      results.push_back(Result(type, bytes.data()));
    }
    return json{{"results", std::move(results)}, {"ops", ops_}};
  }

  absl::StatusOr<json> Train() {
    const json& train = text_.at("train");
    const Tensor losses = values_.at(train.at("loss"));
    compiler::ProgramSpec spec{
        .name = "train",
        .accumulation = train.at("accumulation"),
        .loss = graph_.TypeOf(losses).dims.empty() ? losses : graph_.Sum(losses)};
    if (train.contains("sgd")) spec.optimizer = Sgd(train.at("sgd"));
    if (train.contains("adam")) spec.optimizer = Adam(train.at("adam"));
    if (train.contains("rms_prop")) spec.optimizer = RmsProp(train.at("rms_prop"));
    if (train.contains("lamb")) spec.optimizer = Lamb(train.at("lamb"));
    if (train.contains("lars")) spec.optimizer = Lars(train.at("lars"));
    if (train.contains("clip_norm")) spec.clip_norm = train.at("clip_norm").get<float>();
    if (train.contains("clip_value")) spec.clip_value = train.at("clip_value").get<float>();
    if (train.contains("loss_scale")) {
      spec.loss_scale = train.at("loss_scale").get<float>();
      spec.automatic_loss_scale = {.growth = 2, .backoff = 0.5f, .interval = 2};
    }
    VPOD_ASSIGN_OR_RETURN(auto session, Open(spec));
    VPOD_RETURN_IF_ERROR(WriteInputs(*session));
    for (int step = 0; step < train.at("steps").get<int>(); ++step)
      VPOD_RETURN_IF_ERROR(session->Run("train").status());
    json results = json::array();
    const auto add = [&](const std::string& name, program::Dims dims) -> absl::Status {
      VPOD_ASSIGN_OR_RETURN(const std::vector<float> values, session->ReadFloats(name));
      results.push_back(Result({v1::FLOAT32, std::move(dims)}, values.data()));
      return absl::OkStatus();
    };
    for (Tensor variable : Operands(text_.at("results")))
      VPOD_RETURN_IF_ERROR(add(graph_.values()[variable.id].name, graph_.TypeOf(variable).dims));
    if (spec.loss_scale) VPOD_RETURN_IF_ERROR(add(compiler::kLossScaleName, {}));
    return json{{"results", std::move(results)}, {"ops", ops_}};
  }

  static compiler::SgdOptions Sgd(const json& options) {
    return {.learning_rate = options.at("lr"),
            .momentum = options.at("momentum"),
            .dampening = options.at("dampening"),
            .weight_decay = options.at("weight_decay"),
            .nesterov = options.at("nesterov"),
            .maximize = options.at("maximize")};
  }

  static compiler::AdamOptions Adam(const json& options) {
    return {.learning_rate = options.at("lr"),
            .beta1 = options.at("betas").at(0),
            .beta2 = options.at("betas").at(1),
            .epsilon = options.at("eps"),
            .weight_decay = options.at("weight_decay"),
            .decoupled_weight_decay = options.at("decoupled"),
            .amsgrad = options.at("amsgrad"),
            .maximize = options.at("maximize")};
  }

  static compiler::RmsPropOptions RmsProp(const json& options) {
    return {.learning_rate = options.at("lr"),
            .alpha = options.at("alpha"),
            .epsilon = options.at("eps"),
            .weight_decay = options.at("weight_decay"),
            .momentum = options.at("momentum"),
            .centered = options.at("centered")};
  }

  static compiler::LambOptions Lamb(const json& options) {
    return {.learning_rate = options.at("lr"),
            .beta1 = options.at("betas").at(0),
            .beta2 = options.at("betas").at(1),
            .epsilon = options.at("eps"),
            .weight_decay = options.at("weight_decay")};
  }

  static compiler::LarsOptions Lars(const json& options) {
    return {.learning_rate = options.at("lr"),
            .momentum = options.at("momentum"),
            .weight_decay = options.at("weight_decay"),
            .trust = options.at("trust"),
            .epsilon = options.at("eps")};
  }

  const json& text_;
  const std::string& data_;
  std::string& result_data_;
  Graph graph_;
  std::vector<Tensor> values_;
  std::vector<Input> inputs_;
  std::set<std::string> ops_;
};

json KernelNames() {
  json names = json::array();
  const auto* kinds = v1::Instruction::descriptor()->FindOneofByName("attributes");
  for (int i = 0; i < kinds->field_count(); ++i) {
    const auto kind = static_cast<program::OpKind>(kinds->field(i)->number());
    if (program::FindOp(kind)->role == program::Role::kKernel)
      names.push_back(program::OpName(kind));
  }
  return names;
}

json AtenOperators() {
  json operators = json::array();
  for (const auto& [name, parameters] : aten::Operators()) operators.push_back({name, parameters});
  return operators;
}

absl::Status RunAll(char** paths) {
  const std::string cases = base::ReadFile(paths[0]), data = base::ReadFile(paths[1]);
  json results = {{"kernels", KernelNames()}, {"aten", AtenOperators()}, {"cases", json::array()}};
  std::string result_data;
  for (const json& text : json::parse(cases)) {
    auto result = Case(text, data, result_data).Run();
    results["cases"].push_back(
        result.ok() ? *std::move(result) : json{{"error", std::string(result.status().message())}});
  }
  VPOD_RETURN_IF_ERROR(base::ReplaceFile(paths[2], results.dump(), 0644));
  return base::ReplaceFile(paths[3], result_data, 0644);
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: run_cases CASES DATA RESULTS RESULT_DATA\n");
    return 2;
  }
  try {
    const absl::Status status = vpod::RunAll(argv + 1);
    if (status.ok()) return 0;
    std::fprintf(stderr, "run_cases: error: %s\n", std::string(status.message()).c_str());
  } catch (const std::exception& error) {  // the JSON library's
    std::fprintf(stderr, "run_cases: error: %s\n", error.what());
  }
  return 1;
}
