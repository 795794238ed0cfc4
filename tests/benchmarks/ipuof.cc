// Streams and calls between a program and the POD whose environment is set (eval "$(vpod env)"),
// which needs a partition: host-to-device stream bandwidth against memcpy, and the round trip of an
// empty run against an empty unary gRPC call.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "client/ipuof/ipuof_device.h"
#include "client/popdist/job.h"
#include "client/session/session.h"
#include "client/vipu/client.h"
#include "client/vipu/ipuof_config.h"
#include "device/program/executable.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"

namespace vpod {
namespace {

namespace v1 = program::v1;
using Clock = std::chrono::steady_clock;

template <class T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "ipuof benchmark: error: %s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

// Median seconds of a call.
template <class F>
double Median(int repetitions, const F& call) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = Clock::now();
    call();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + repetitions / 2, seconds.end());
  return seconds[static_cast<size_t>(repetitions) / 2];
}

constexpr int64_t kStreamFloats = 16 << 20;  // 64 MiB in one transfer

v1::Executable Programs() {
  v1::Executable executable;
  executable.set_ipus_per_replica(1);
  v1::Ipu* ipu = executable.add_ipus();
  ipu->set_arena_bytes(kStreamFloats * sizeof(float));
  v1::Tensor* tensor = ipu->add_tensors();
  tensor->set_type(v1::FLOAT32);
  tensor->add_dims(kStreamFloats);
  v1::Stream* stream = executable.add_streams();
  stream->set_name("data");
  stream->set_to_device(true);
  stream->set_type(v1::FLOAT32);
  stream->add_dims(kStreamFloats);
  stream->set_transfers_per_run(1);
  v1::Program* read = executable.add_programs();
  read->set_name("read");
  read->add_functions(0);
  v1::Instruction* in = executable.mutable_ipus(0)->add_functions()->add_instructions();
  in->mutable_stream_in();
  in->add_outputs(0);
  v1::Program* empty = executable.add_programs();
  empty->set_name("empty");
  executable.mutable_ipus(0)->add_functions();
  empty->add_functions(1);
  return executable;
}

int Main() {
  const auto partition = OrDie(vipu::FindActivePartition());
  auto device = OrDie(ipuof::AttachDevice(partition, {popdist::ThisJobMember(1, 1), -1}));
  const compiler::Compiled compiled{OrDie(program::Executable::Make(Programs())), {}};
  const auto session = OrDie(session::Session::Create(std::move(device), compiled));

  const auto stream = OrDie(session->Stream<float>("data", 0));
  std::fill(stream.begin(), stream.end(), 1.0f);
  std::vector<float> copy(stream.size());
  const double bytes = static_cast<double>(stream.size() * sizeof(float));
  std::memcpy(copy.data(), stream.data(), stream.size() * sizeof(float));
  OrDie(session->Run("read"));
  const double stream_seconds = Median(21, [&] { OrDie(session->Run("read")); });
  const double memcpy_seconds =
      Median(21, [&] { std::memcpy(copy.data(), stream.data(), stream.size() * sizeof(float)); });
  std::printf("host-to-device stream, 64 MiB: %.2f GB/s, memcpy %.2f GB/s, ratio %.2f\n",
              bytes / stream_seconds / 1e9, bytes / memcpy_seconds / 1e9,
              memcpy_seconds / stream_seconds);

  const auto config = OrDie(vipu::DiscoverConfig({}));
  const auto stub = vipuuser::VipuUser::NewStub(
      grpc::CreateChannel(config.address(), grpc::InsecureChannelCredentials()));
  const auto unary = [&] {
    grpc::ClientContext context;
    vipuuser::GetServerInfoReply reply;
    if (!stub->GetServerInfo(&context, {}, &reply).ok()) std::exit(1);
  };
  for (int i = 0; i < 200; ++i) unary(), OrDie(session->Run("empty"));
  const double run_seconds = Median(3000, [&] { OrDie(session->Run("empty")); });
  const double call_seconds = Median(3000, unary);
  std::printf("empty run: %.1f us, empty unary gRPC call %.1f us, ratio %.2f\n", run_seconds * 1e6,
              call_seconds * 1e6, run_seconds / call_seconds);
  return 0;
}

}  // namespace
}  // namespace vpod

int main() { return vpod::Main(); }
