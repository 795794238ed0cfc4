// Runs a model of client/models for inference on the IPUModel, with the variables of an .npz file:
//   infer MODEL DIRECTORY
// reads weights.npz and images.npz (an array `images`) in the directory, and writes logits.npz and
// saved.npz, the variables as the session saves them.
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/mnist.h"
#include "client/models/resnet.h"
#include "client/session/ipu_model.h"
#include "client/session/npz.h"
#include "client/session/session.h"
#include "device/base/status.h"

namespace vpod {
namespace {

absl::Status Infer(const std::string& model, const std::string& directory) {
  VPOD_ASSIGN_OR_RETURN(const session::Arrays inputs,
                        session::ReadNpz(absl::StrCat(directory, "/images.npz")));
  const session::Array& data = inputs.at("images");
  graph::Graph graph;
  const nn::Builder net(graph, {});
  models::ResNetOptions resnet = models::ResNet18();
  resnet.classes = 10;
  resnet.small_images = true;
  const graph::Tensor images = graph.Input("images", data.type);
  const graph::Tensor logits =
      model == "mnist" ? models::Mnist(net, images) : models::ResNet(net, images, resnet);
  graph.Output("logits", logits);
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                        compiler::Compile(graph, {.programs = {{.name = "infer"}}}));
  VPOD_ASSIGN_OR_RETURN(auto device, session::CreateIpuModel({}));
  VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
  VPOD_RETURN_IF_ERROR(session->Load(absl::StrCat(directory, "/weights.npz")));
  VPOD_ASSIGN_OR_RETURN(const auto stream, session->Stream<float>("images", 0));
  std::memcpy(stream.data(), data.bytes.data(), data.bytes.size());
  VPOD_RETURN_IF_ERROR(session->Run("infer").status());
  VPOD_ASSIGN_OR_RETURN(const auto result, session->Stream<float>("logits", 0));
  VPOD_RETURN_IF_ERROR(
      session::WriteNpz(absl::StrCat(directory, "/logits.npz"),
                        {{"logits", session::FloatArray(graph.TypeOf(logits).dims, result)}}));
  return session->Save(absl::StrCat(directory, "/saved.npz"));
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) {
  const absl::Status status = argc == 3
                                  ? vpod::Infer(argv[1], argv[2])
                                  : absl::InvalidArgumentError("usage: infer MODEL DIRECTORY");
  if (status.ok()) return 0;
  std::fprintf(stderr, "infer: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
