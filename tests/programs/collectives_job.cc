// A replicated job that runs every collective with every operator, group and type, and an exchange
// among the IPUs of a replica, and writes the bits that each replica received: they must not depend
// on where the replicas are.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/ipuof/ipuof_device.h"
#include "client/popdist/context.hpp"
#include "client/popdist/job.h"
#include "client/session/session.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"
#include "device/program/executable.h"

namespace vpod::testing {
namespace {

namespace v1 = program::v1;
using graph::Tensor;

// Elements of a tensor for each replica of the job.
constexpr int64_t kRow = 501;

class Job {
 public:
  Job(uint32_t replicas, uint32_t ipus) : replicas_(replicas) {
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      graph_.SetIpu(ipu);
      const program::Dims dims = {replicas, kRow};
      const Tensor floats = graph_.Input(absl::StrCat("floats", ipu), {v1::FLOAT32, dims});
      const Tensor ints = graph_.Input(absl::StrCat("ints", ipu), {v1::INT32, dims});
      Add(absl::StrCat("float32 ipu", ipu), floats);
      Add(absl::StrCat("float16 ipu", ipu), graph_.Cast(floats, v1::FLOAT16));
      Add(absl::StrCat("int32 ipu", ipu), ints);
    }
  }

  const graph::Graph& graph() const { return graph_; }
  const std::vector<std::pair<std::string, v1::DataType>>& outputs() const { return outputs_; }

 private:
  void Add(const std::string& prefix, Tensor x) {
    for (const auto kind :
         {v1::ReplicaGroup::ALL, v1::ReplicaGroup::CONSECUTIVE, v1::ReplicaGroup::ORTHOGONAL}) {
      v1::ReplicaGroup group;
      group.set_kind(kind);
      if (kind != v1::ReplicaGroup::ALL) group.set_size(replicas_ / 2);
      const uint32_t members = kind == v1::ReplicaGroup::ALL ? replicas_ : group.size();
      const std::string name = absl::StrCat(prefix, " ", v1::ReplicaGroup::Kind_Name(kind), " ");
      for (const auto op : {v1::SUM, v1::MEAN, v1::MIN, v1::MAX, v1::PRODUCT, v1::SQUARE_ADD}) {
        if (op == v1::MEAN && graph_.TypeOf(x).type == v1::INT32) continue;
        const std::string with = absl::StrCat(name, v1::ReduceOperator_Name(op), " ");
        Output(with + "all-reduce", graph_.AllReduce(op, x, group));
        Output(with + "reduce-scatter", graph_.ReduceScatter(op, x, members, group));
      }
      Output(name + "all-gather", graph_.AllGather(x, members, group));
      Output(name + "all-to-all", graph_.AllToAll(x, members, group));
      Output(name + "broadcast", graph_.Broadcast(members - 1, x, group));
    }
  }
  void Output(const std::string& name, Tensor value) {
    graph_.Output(name, value);
    outputs_.emplace_back(name, graph_.TypeOf(value).type);
  }

  const uint32_t replicas_;
  graph::Graph graph_;
  std::vector<std::pair<std::string, v1::DataType>> outputs_;
};

// Adds a program "ring" in which all IPUs of a replica pass a variable to the next, at once.
absl::Status AddRing(compiler::Compiled& compiled) {
  v1::Executable executable = compiled.executable->proto();
  const uint32_t ipus = executable.ipus_per_replica();
  v1::Program* ring = executable.add_programs();
  ring->set_name("ring");
  const auto exchange = static_cast<uint32_t>(executable.exchanges_size());
  v1::Exchange* moves = executable.add_exchanges();
  std::vector<uint32_t> sent;
  for (v1::Ipu& ipu : *executable.mutable_ipus()) {
    sent.push_back(static_cast<uint32_t>(ipu.tensors_size()));
    for (int i = 0; i < 2; ++i) {
      v1::Tensor* tensor = ipu.add_tensors();
      tensor->set_type(v1::INT32);
      tensor->add_dims(kRow);
      tensor->set_offset(ipu.arena_bytes());
      ipu.set_arena_bytes(ipu.arena_bytes() + (kRow * 4 + 63) / 64 * 64);
    }
    ring->add_functions(static_cast<uint32_t>(ipu.functions_size()));
    v1::Instruction* step = ipu.add_functions()->add_instructions();
    step->mutable_exchange()->set_exchange(exchange);
    step->add_inputs(sent.back());
    step->add_outputs(sent.back() + 1);
  }
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    v1::Move* move = moves->add_moves();
    move->set_from_ipu(ipu);
    move->set_from_tensor(sent[ipu]);
    move->set_to_ipu((ipu + 1) % ipus);
    move->set_to_tensor(sent[(ipu + 1) % ipus] + 1);
    for (const char* name : {"sent", "received"}) {
      v1::Variable* variable = executable.add_variables();
      variable->set_name(absl::StrCat(name, ipu));
      variable->set_ipu(ipu);
      variable->set_tensor(sent[ipu] + (*name == 's' ? 0 : 1));
    }
  }
  VPOD_ASSIGN_OR_RETURN(compiled.executable, program::Executable::Make(std::move(executable)));
  return absl::OkStatus();
}

// Cycles of the ring, in which each IPU must receive what the one before it has.
absl::StatusOr<uint64_t> RunRing(session::Session& session, uint32_t ipus) {
  const auto data = [](uint32_t ipu) {
    return std::string(static_cast<size_t>(kRow) * 4, static_cast<char>('a' + ipu));
  };
  session::Device& device = session.device();
  for (uint32_t ipu = 0; ipu < ipus; ++ipu)
    VPOD_RETURN_IF_ERROR(device.WriteVariable(absl::StrCat("sent", ipu), data(ipu)));
  VPOD_ASSIGN_OR_RETURN(const auto cycles, session.Run("ring"));
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    for (uint32_t r = 0; r < device.local_replicas(); ++r) {
      VPOD_ASSIGN_OR_RETURN(const std::string received,
                            device.ReadVariable(absl::StrCat("received", ipu), r));
      if (received != data((ipu + ipus - 1) % ipus))
        return absl::InternalError(absl::StrCat("IPU ", ipu, " received something else"));
    }
  }
  return cycles.value();
}

// FNV-1a over what a replica received, 64 bits; T has the size of the stream's elements.
template <class T>
absl::StatusOr<uint64_t> Digest(session::Session& session, const std::string& output,
                                uint32_t replica) {
  VPOD_ASSIGN_OR_RETURN(const absl::Span<T> elements, session.Stream<T>(output, replica));
  uint64_t digest = 0xcbf29ce484222325;
  for (const T element : elements) digest = (digest ^ element) * 0x100000001b3;
  return digest;
}

absl::Status Run(uint32_t ipus, const std::string& results) {
  const uint32_t total = popdist::getNumTotalReplicas(), local = popdist::getNumLocalReplicas();
  const uint32_t offset = popdist::getReplicaIndexOffset();
  const Job job(total, ipus);
  VPOD_RETURN_IF_ERROR(job.graph().status());
  compiler::CompileOptions options;
  options.total_replicas = total;
  options.ipus_per_replica = ipus;
  options.programs = {{.name = "collectives"}};
  VPOD_ASSIGN_OR_RETURN(auto compiled, compiler::Compile(job.graph(), options));
  if (ipus > 1) VPOD_RETURN_IF_ERROR(AddRing(compiled));
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  const ipuof::DeviceOptions device_options{
      popdist::ThisJobMember(local, ipus),
      static_cast<int>(
          popdist::getDeviceId(static_cast<uint32_t>(partition.config.devices_size())))};
  VPOD_ASSIGN_OR_RETURN(auto device, ipuof::AttachDevice(partition, device_options));
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  for (uint32_t r = 0; r < local; ++r) {
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      uint32_t state = (offset + r) * 2654435761u + ipu + 1;
      const auto next = [&state] { return state = state * 1664525u + 1013904223u; };
      VPOD_ASSIGN_OR_RETURN(auto floats, session->Stream<float>(absl::StrCat("floats", ipu), r));
      for (float& value : floats) value = static_cast<float>(next() >> 8) / (1 << 23) - 1;
      VPOD_ASSIGN_OR_RETURN(auto ints, session->Stream<int32_t>(absl::StrCat("ints", ipu), r));
      for (int32_t& value : ints) value = static_cast<int32_t>(next());
    }
  }
  VPOD_ASSIGN_OR_RETURN(const auto cycles, session->Run("collectives"));
  uint64_t ring = 0;
  if (ipus > 1) {
    VPOD_ASSIGN_OR_RETURN(ring, RunRing(*session, ipus));
  }
  std::ofstream file(absl::StrCat(results, ".", popdist::getInstanceIndex()));
  for (uint32_t r = 0; r < local; ++r) {
    file << "replica " << offset + r << ": " << cycles.value() << " cycles\n";
    file << "  ring " << ring << " more\n";
    for (const auto& [name, type] : job.outputs()) {
      VPOD_ASSIGN_OR_RETURN(const uint64_t digest, type == v1::FLOAT16
                                                       ? Digest<uint16_t>(*session, name, r)
                                                       : Digest<uint32_t>(*session, name, r));
      file << absl::StrCat("  ", name, " ", absl::Hex(digest), "\n");
    }
  }
  if (!file.flush()) return absl::InternalError("cannot write the results");
  return absl::OkStatus();
}

}  // namespace
}  // namespace vpod::testing

int main(int argc, char** argv) {
  uint32_t ipus = 1;
  std::string results;
  CLI::App app("A replicated job that runs every collective.", "collectives_job");
  app.add_option("--ipus", ipus, "IPUs of a replica");
  app.add_option("--results", results, "file for the bits, by instance")->required();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = vpod::testing::Run(ipus, results);
  if (status.ok()) return 0;
  std::fprintf(stderr, "collectives_job: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
