// All-reduce of float32 over virtual IPUs against Open MPI and Gloo on the same machine.
//   all_reduce        16 replicas in this process, without daemons
//   all_reduce agents shm|tcp|tls [MIB [REPLICAS]]
//                     4 replicas, then 16, on the 4 agents of the POD whose environment is set and
//                     has a partition of 16 IPUs; the agents' VPOD_TRANSPORT must be the one named
// The peers' part is all_reduce_peers beside this program.
#include "tests/benchmarks/all_reduce.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ipuof/ipuof_device.h"
#include "client/popdist/job.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "client/vipu/ipuof_config.h"
#include "device/program/executable.h"

namespace vpod {
namespace {

namespace v1 = program::v1;

constexpr int kRounds = 5;
const std::vector<size_t> kSizes = {1 << 10, 16 << 10, 256 << 10, 1 << 20,
                                    4 << 20, 16 << 20, 64 << 20};

template <class T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "all_reduce: error: %s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

// Replicas whose first IPU all-reduces one tensor into another: "in" reads the former, "run"
// reduces a number of times, "out" writes the latter. The result is a variable: the
// replicas of a process share it, and it is written once.
v1::Executable Programs(int ipus_per_replica, size_t bytes) {
  v1::Executable executable;
  executable.set_ipus_per_replica(static_cast<uint32_t>(ipus_per_replica));
  for (int i = 0; i < ipus_per_replica; ++i) executable.add_ipus();
  v1::Ipu* ipu = executable.mutable_ipus(0);
  ipu->set_arena_bytes(2 * bytes);
  for (uint64_t offset : {uint64_t{0}, uint64_t{bytes}}) {
    v1::Tensor* tensor = ipu->add_tensors();
    tensor->set_type(v1::FLOAT32);
    tensor->add_dims(static_cast<int64_t>(bytes / sizeof(float)));
    tensor->set_offset(offset);
    v1::Stream* stream = executable.add_streams();
    stream->set_name(offset == 0 ? "in" : "out");
    stream->set_to_device(offset == 0);
    stream->set_type(v1::FLOAT32);
    *stream->mutable_dims() = tensor->dims();
    stream->set_transfers_per_run(1);
  }
  v1::Variable* sum = executable.add_variables();
  sum->set_name("sum");
  sum->set_tensor(1);
  // Functions of the first IPU: an all-reduce, then the entries of the programs.
  v1::Instruction* all_reduce = ipu->add_functions()->add_instructions();
  all_reduce->mutable_all_reduce()->set_operator_(v1::SUM);
  all_reduce->add_inputs(0);
  all_reduce->add_outputs(1);
  v1::Instruction* in = ipu->add_functions()->add_instructions();
  in->mutable_stream_in()->set_stream(0);
  in->add_outputs(0);
  ipu->add_functions()->add_instructions()->mutable_repeat()->set_count(
      static_cast<uint32_t>(Repetitions(bytes)));
  v1::Instruction* out = ipu->add_functions()->add_instructions();
  out->mutable_stream_out()->set_stream(1);
  out->add_inputs(1);
  for (int i = 1; i < ipus_per_replica; ++i) executable.mutable_ipus(i)->add_functions();
  const char* names[] = {"in", "run", "out"};
  for (uint32_t p = 0; p < 3; ++p) {
    v1::Program* program = executable.add_programs();
    program->set_name(names[p]);
    program->add_functions(p + 1);
    for (int i = 1; i < ipus_per_replica; ++i) program->add_functions(0);
  }
  return executable;
}

// Replicas with their contributions in place, whose sums have been checked.
std::unique_ptr<session::Session> Ours(std::unique_ptr<session::Device> device, int replicas,
                                       int ipus_per_replica, size_t bytes) {
  const compiler::Compiled compiled{
      OrDie(program::Executable::Make(Programs(ipus_per_replica, bytes))), {}};
  auto session = OrDie(session::Session::Create(std::move(device), compiled));
  for (int r = 0; r < replicas; ++r) {
    const auto in = OrDie(session->Stream<float>("in", static_cast<uint32_t>(r)));
    for (size_t i = 0; i < in.size(); ++i) in[i] = Contribution(r, i);
  }
  for (const char* program : {"in", "run", "out"}) OrDie(session->Run(program));
  for (int r = 0; r < replicas; ++r) {
    if (IsSum(OrDie(session->Stream<float>("out", static_cast<uint32_t>(r))), replicas)) continue;
    std::fprintf(stderr, "all_reduce: error: wrong sums on replica %d\n", r);
    std::exit(1);
  }
  return session;
}

struct Peer {
  std::string name, command;  // which the bytes are appended to
};

double PeerSeconds(const Peer& peer, size_t bytes) {
  FILE* pipe = popen(absl::StrCat(peer.command, " ", bytes).c_str(), "r");
  double seconds = 0;
  const bool read = pipe != nullptr && std::fscanf(pipe, "%lf", &seconds) == 1;
  if (pipe == nullptr || pclose(pipe) != 0 || !read) {
    std::fprintf(stderr, "all_reduce: error: '%s' failed\n", peer.command.c_str());
    std::exit(1);
  }
  return seconds;
}

// Ours and the peers in turn, so that a change in what else the machine does meets all of them.
template <class Attach>
void Compare(const std::string& title, int replicas, int ipus_per_replica,
             const std::vector<size_t>& sizes, const std::vector<Peer>& peers,
             const Attach& attach) {
  std::printf("all-reduce, float32, %s (buffer bytes / seconds, median of %d)\n%12s %12s",
              title.c_str(), kRounds, "bytes", "ours GB/s");
  for (const Peer& peer : peers) std::printf(" %13s %8s", (peer.name + " GB/s").c_str(), "ratio");
  std::printf("\n");
  for (size_t bytes : sizes) {
    const auto session =
        Ours(attach(replicas, ipus_per_replica), replicas, ipus_per_replica, bytes);
    std::vector<double> ours;
    std::vector<std::vector<double>> theirs(peers.size());
    for (int round = 0; round < kRounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      OrDie(session->Run("run"));
      ours.push_back(SecondsSince(start) / Repetitions(bytes));
      for (size_t p = 0; p < peers.size(); ++p) theirs[p].push_back(PeerSeconds(peers[p], bytes));
    }
    const double gigabytes = static_cast<double>(bytes) / 1e9;
    std::printf("%12zu %12.3f", bytes, gigabytes / Median(ours));
    for (const auto& seconds : theirs)
      std::printf(" %13.3f %8.2f", gigabytes / Median(seconds), Median(seconds) / Median(ours));
    std::printf("\n");
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  const std::string peers = absl::StrCat(argv[0], "_peers");
  const auto mpi = [&](int ranks, const std::string& layer) {
    return Peer{"Open MPI",
                absl::StrCat("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                             "mpirun --oversubscribe --bind-to none --mca pml ob1 ",
                             "--mca btl self,", layer, " -np ", ranks, " ", peers, " mpi")};
  };
  const auto gloo = [&](int ranks) { return Peer{"Gloo", absl::StrCat(peers, " gloo ", ranks)}; };
  if (argc == 1) {
    Compare("16 replicas in one process", 16, 1, kSizes, {mpi(16, "vader")}, [](int replicas, int) {
      return OrDie(session::CreateIpuModel({.replicas = static_cast<uint32_t>(replicas)}));
    });
    return 0;
  }
  const std::string transport = argc >= 3 ? argv[2] : "";
  const size_t mebibytes = argc >= 4 ? std::strtoull(argv[3], nullptr, 10) : 0;
  if (argv[1] != std::string("agents") ||
      (transport != "shm" && transport != "tcp" && transport != "tls")) {
    std::fprintf(stderr,
                 "all_reduce: error: usage: all_reduce [agents shm|tcp|tls [MIB [REPLICAS]]]\n");
    return 2;
  }
  const auto compare = [&](int replicas, const std::vector<size_t>& sizes) {
    const auto attach = [](int replicas, int ipus_per_replica) {
      return OrDie(
          ipuof::AttachDevice(OrDie(vipu::FindActivePartition()),
                              {popdist::ThisJobMember(static_cast<uint32_t>(replicas),
                                                      static_cast<uint32_t>(ipus_per_replica)),
                               -1}));
    };
    const std::string way = transport == "shm"   ? "shared memory"
                            : transport == "tcp" ? "TCP"
                                                 : "TLS; the peers send in clear";
    Compare(absl::StrCat(replicas, " replicas on 4 agents, ", way), replicas, 16 / replicas, sizes,
            {mpi(replicas, transport == "shm" ? "vader" : "tcp"), gloo(replicas)}, attach);
  };
  if (mebibytes > 0) {
    compare(argc >= 5 ? std::atoi(argv[4]) : 4, {mebibytes << 20});
  } else {
    compare(4, kSizes);
    compare(16, {16 << 20, 64 << 20});
  }
  return 0;
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) { return vpod::Main(argc, argv); }
