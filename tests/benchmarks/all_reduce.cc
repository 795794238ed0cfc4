// All-reduce of float32 over 16 replicas on virtual IPUs, against MPI_Allreduce over 16 ranks on
// the same machine.
//   all_reduce         runs both, prints a table with the ratio
//   all_reduce --mpi   the peer's part, started by the above under mpirun
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/program/executable.h"

namespace vpod {
namespace {

constexpr int kReplicas = 16;
const std::vector<size_t> kBytes = {1 << 10, 16 << 10, 256 << 10, 1 << 20,
                                    4 << 20, 16 << 20, 64 << 20};

int Repetitions(size_t bytes) { return bytes >= (16u << 20) ? 3 : bytes >= (1u << 20) ? 20 : 200; }

double Seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int MpiPart() {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (size_t bytes : kBytes) {
    const auto count = static_cast<int>(bytes / sizeof(float));
    std::vector<float> in(static_cast<size_t>(count), 1.0f), out(static_cast<size_t>(count));
    MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    const int repetitions = Repetitions(bytes);
    for (int i = 0; i < repetitions; ++i) {
      MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) std::printf("%zu %.9f\n", bytes, Seconds(start) / repetitions);
  }
  MPI_Finalize();
  return 0;
}

// Seconds of one all-reduce on the engine, without daemons.
double OurPart(size_t bytes) {
  namespace v1 = program::v1;
  v1::Executable executable;
  executable.set_ipus_per_replica(1);
  v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes(2 * bytes);
  for (uint64_t offset : {uint64_t{0}, uint64_t{bytes}}) {
    v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(v1::FLOAT32);
    tensor->add_dims(static_cast<int64_t>(bytes / sizeof(float)));
    tensor->set_offset(offset);
  }
  const int repetitions = Repetitions(bytes);
  for (int count : {1, repetitions + 1}) {
    v1::Program* program = executable.add_programs();
    program->set_name(absl::StrCat("run", count));
    v1::Block* block = program->add_blocks();
    // Touches the memory, so that no page fault is measured.
    for (uint32_t tensor : {0u, 1u}) {
      v1::Fill* fill = block->add_instructions()->mutable_fill();
      fill->set_output(tensor);
      fill->set_value(1);
    }
    v1::Repeat* repeat = block->add_instructions()->mutable_repeat();
    repeat->set_count(static_cast<uint32_t>(count));
    v1::AllReduce* all_reduce = repeat->add_body()->mutable_all_reduce();
    all_reduce->set_operator_(v1::SUM);
    all_reduce->add_inputs(0);
    all_reduce->add_outputs(1);
  }
  auto device = session::CreateIpuModel({.replicas = kReplicas});
  compiler::Compiled compiled{program::Serialize(executable), {}};
  auto session = session::Session::Create(*std::move(device), compiled);
  if (!session.ok()) {
    std::fprintf(stderr, "%s\n", session.status().ToString().c_str());
    std::exit(1);
  }
  const auto time = [&](const std::string& program) {
    const auto start = std::chrono::steady_clock::now();
    if (!(*session)->Run(program).ok()) std::exit(1);
    return Seconds(start);
  };
  const std::string many = absl::StrCat("run", repetitions + 1);
  time(many);
  // The difference leaves the repetitions alone, without starting a run and filling the tensors.
  double best = 1e9;
  for (int i = 0; i < 3; ++i) best = std::min(best, time(many) - time("run1"));
  return best / repetitions;
}

int Compare(const char* self) {
  std::map<size_t, double> peer;
  const std::string command = absl::StrCat(
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to "
      "none -np ",
      kReplicas, " ", self, " --mpi");
  FILE* pipe = popen(command.c_str(), "r");
  size_t bytes = 0;
  double seconds = 0;
  while (pipe != nullptr && std::fscanf(pipe, "%zu %lf", &bytes, &seconds) == 2)
    peer[bytes] = seconds;
  if (pipe != nullptr) pclose(pipe);
  std::printf("all-reduce, float32, 16 replicas (buffer bytes / seconds)\n");
  std::printf("%12s %14s %14s %8s\n", "bytes", "ours GB/s", "Open MPI GB/s", "ratio");
  for (size_t size : kBytes) {
    const double ours = OurPart(size);
    const double theirs = peer.count(size) > 0 ? peer[size] : 0;
    std::printf("%12zu %14.3f %14.3f %8.2f\n", size, static_cast<double>(size) / ours / 1e9,
                theirs > 0 ? static_cast<double>(size) / theirs / 1e9 : 0.0, theirs / ours);
  }
  return 0;
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--mpi") == 0) return vpod::MpiPart();
  return vpod::Compare(argv[0]);
}
