#include "absl/strings/str_cat.h"
#include "client/graph/graph.h"

namespace vpod::graph {

RemoteBuffer Graph::AddRemoteBuffer(absl::string_view name, TensorType row, uint32_t rows) {
  const auto refuse = [&](absl::string_view why) {
    Fail(absl::InvalidArgumentError(absl::StrCat("remote buffer '", name, "': ", why)));
    return RemoteBuffer{};
  };
  if (name.empty()) return refuse("the name is empty");
  const absl::Status status = program::Check(row);
  if (!status.ok()) return refuse(status.message());
  if (rows < 1) return refuse("there are 0 rows, must be 1 or more");
  for (const auto& [ipu, buffers] : remote_buffers_) {
    for (const v1::RemoteBuffer& buffer : buffers) {
      if (buffer.name() == name) return refuse("the name is used twice");
    }
  }
  std::vector<v1::RemoteBuffer>& buffers = remote_buffers_[ipu_];
  v1::RemoteBuffer& buffer = buffers.emplace_back();
  buffer.set_name(std::string(name));
  buffer.set_type(row.type);
  buffer.mutable_dims()->Add(row.dims.begin(), row.dims.end());
  buffer.set_rows(rows);
  return {ipu_, static_cast<uint32_t>(buffers.size() - 1)};
}

const v1::RemoteBuffer* Graph::FindRemoteBuffer(RemoteBuffer buffer, absl::string_view op) {
  const auto buffers = remote_buffers_.find(buffer.ipu);
  if (buffers == remote_buffers_.end() || buffer.index >= buffers->second.size()) {
    Refuse(op, "there is no such remote buffer in this graph");
    return nullptr;
  }
  const v1::RemoteBuffer& found = buffers->second[buffer.index];
  if (buffer.ipu == ipu_) return &found;
  Refuse(op, absl::StrCat("remote buffer '", found.name(), "' is of IPU ", buffer.ipu,
                          ", the operation of IPU ", ipu_));
  return nullptr;
}

Tensor Graph::RemoteLoad(RemoteBuffer buffer, Tensor row) {
  const v1::RemoteBuffer* found = FindRemoteBuffer(buffer, "remote_load");
  if (found == nullptr || !Usable({row}, "remote_load")) return {};
  if (TypeOf(row) != TensorType{v1::INT32, {}}) {
    return Refuse("remote_load", absl::StrCat("the row's number is ", TypeOf(row).ToString(),
                                              ", must be an int32 scalar"));
  }
  v1::Instruction op;
  op.mutable_remote_load()->set_buffer(buffer.index);
  return AddOperation(std::move(op), {row}, program::TypeOf(*found));
}

void Graph::RemoteStore(RemoteBuffer buffer, Tensor value, Tensor row) {
  const v1::RemoteBuffer* found = FindRemoteBuffer(buffer, "remote_store");
  if (found == nullptr || !Usable({value, row}, "remote_store")) return;
  const TensorType expected = program::TypeOf(*found);
  if (TypeOf(value) != expected || TypeOf(row) != TensorType{v1::INT32, {}}) {
    Refuse("remote_store", absl::StrCat("a row of ", found->name(), " is ", expected.ToString(),
                                        " and its number an int32 scalar; given are ",
                                        TypeOf(value).ToString(), " and ", TypeOf(row).ToString()));
    return;
  }
  v1::Instruction op;
  op.mutable_remote_store()->set_buffer(buffer.index);
  op.add_inputs(value.id);
  op.add_inputs(row.id);
  AddNode(std::move(op));
}

}  // namespace vpod::graph
