// The peers of the all-reduce benchmark: prints the seconds of one all-reduce of float32.
//   mpirun -np RANKS … all_reduce_peers mpi BYTES       Open MPI
//   all_reduce_peers gloo RANKS BYTES                   Gloo, which starts its ranks itself
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/benchmarks/all_reduce.h"

namespace vpod {
namespace {

using AllReduce = std::function<void(const std::vector<float>& in, std::vector<float>& out)>;

int Measure(int rank, int ranks, size_t bytes, const AllReduce& all_reduce,
            const std::function<void()>& barrier) {
  std::vector<float> in(bytes / sizeof(float)), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = Contribution(rank, i);
  all_reduce(in, out);
  if (!IsSum(out, ranks)) {
    std::fprintf(stderr, "all_reduce_peers: error: wrong sums on rank %d\n", rank);
    return 1;
  }
  barrier();
  const auto start = std::chrono::steady_clock::now();
  const int repetitions = Repetitions(bytes);
  for (int i = 0; i < repetitions; ++i) all_reduce(in, out);
  barrier();
  if (rank == 0) std::printf("%.9f\n", SecondsSince(start) / repetitions);
  return 0;
}

int MpiRank(size_t bytes) {
  MPI_Init(nullptr, nullptr);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int code = Measure(
      rank, ranks, bytes,
      [](const std::vector<float>& in, std::vector<float>& out) {
        MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      },
      [] { MPI_Barrier(MPI_COMM_WORLD); });
  MPI_Finalize();
  return code;
}

int GlooRank(int rank, int ranks, const std::string& directory, size_t bytes) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(directory);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  return Measure(
      rank, ranks, bytes,
      [&](const std::vector<float>& in, std::vector<float>& out) {
        gloo::AllreduceOptions options(context);
        options.setInput(const_cast<float*>(in.data()), in.size());
        options.setOutput(out.data(), out.size());
        options.setReduceFunction([](void* to, const void* a, const void* b, size_t count) {
          gloo::sum<float>(to, a, b, count);
        });
        gloo::allreduce(options);
      },
      [&] {
        gloo::BarrierOptions options(context);
        gloo::barrier(options);
      });
}

int GlooRanks(int ranks, size_t bytes) {
  char directory[] = "/tmp/all_reduce_gloo_XXXXXX";
  if (mkdtemp(directory) == nullptr) return 1;
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() == 0) {
      const int code = GlooRank(rank, ranks, directory, bytes);
      std::fflush(stdout);
      _exit(code);
    }
  }
  int failed = 0;
  for (int status = 0; wait(&status) > 0;) failed += status != 0;
  std::filesystem::remove_all(directory);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "mpi") == 0)
    return vpod::MpiRank(std::strtoull(argv[2], nullptr, 10));
  if (argc == 4 && std::strcmp(argv[1], "gloo") == 0)
    return vpod::GlooRanks(std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10));
  return 2;
}
