// Builds a model: what one replica computes for one micro-batch. Shapes are inferred as operations
// are added; the first mistake is remembered and reported by status(), so that model code needs no
// error handling of its own.
//
//   Graph graph;
//   Tensor x = graph.Input("images", {FLOAT32, {16, 784}});
//   Tensor w = graph.Variable("w", {FLOAT32, {784, 10}}, initial);
//   Tensor logits = graph.MatMul(x, w);
//   Tensor labels = graph.Input("labels", {INT32, {16}});
//   Tensor loss = graph.Mean(graph.SoftmaxCrossEntropy(logits, labels));
//   graph.Output("loss", loss);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/graph/graph_parts.h"
#include "client/graph/initial_value.h"
#include "device/program/ops/rules.h"

namespace vpod::graph {

// Prefix of the buffers from which random numbers follow.
inline constexpr char kRandomPrefix[] = "random/";

class GradientMap;

class Graph {
 public:
  Graph() = default;
  // A graph that the compiler printed and read back: it has no initial values.
  explicit Graph(GraphParts parts);

  // The first mistake made in building, or OK.
  const absl::Status& status() const { return status_; }
  // The same, which is forgotten: for callers that report each mistake at once and go on.
  absl::Status TakeStatus() { return std::exchange(status_, absl::OkStatus()); }

  // Later values and operations belong to this IPU of the replica.
  void SetIpu(uint32_t ipu) { ipu_ = ipu; }
  uint32_t ipu() const { return ipu_; }
  // Later values and operations belong to this stage of a pipeline; gradients belong to that of
  // what they are gradients of. It affects when they are computed, but not their results.
  void SetStage(uint32_t stage) { stage_ = stage; }
  uint32_t stage() const { return stage_; }

  // While it exists, operations that are added belong to a named part of the model, as modules are
  // named in PyTorch; messages name it. So do variables and buffers, whose names begin with it: "w"
  // inside "layer1" is "layer1.w". Scopes end in reverse order.
  class [[nodiscard]] Scope {
   public:
    // A part of the scope there is: "0" inside "layer1" is "layer1.0".
    Scope(Graph& graph, absl::string_view name);
    // `path` replaces the scope there is.
    static Scope At(Graph& graph, std::string path);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { graph_.scope_ = std::move(before_); }

   private:
    struct Whole {};
    Scope(Graph& graph, std::string path, Whole);

    Graph& graph_;
    std::string before_;
  };
  const std::string& scope() const { return scope_; }

  // --- Values from outside, each with one element or more ---
  // A host stream: a new micro-batch each time the model runs. Names are unique among inputs and
  // outputs.
  Tensor Input(absl::string_view name, TensorType type);
  // A trainable parameter with its initial value; float types only, values are rounded to the type.
  // Its name is unique among variables and buffers.
  Tensor Variable(absl::string_view name, TensorType type, InitialValue initial);
  // State that is not trained, as running averages are: as a variable of any type, but no gradient
  // is wanted.
  Tensor Buffer(absl::string_view name, TensorType type, InitialValue initial);
  // Assigns a value to a buffer or variable of the same type after each micro-batch, in programs
  // that train or in all programs. Operations, outputs and gradients of that micro-batch see the
  // value before. The update of a variable starts from the assigned value. If replicas assign
  // different values to a variable, their weights differ from then on.
  void Assign(Tensor variable, Tensor value, Assigned when = Assigned::kInTraining);
  // State in the streaming memory of the machine: rows of one type, zeros at first, which this IPU
  // loads and stores by number. An INT32 scalar outside 0 to rows - 1 fails the run. Loads and
  // stores happen in the order in which they are added.
  RemoteBuffer AddRemoteBuffer(absl::string_view name, TensorType row, uint32_t rows);
  Tensor RemoteLoad(RemoteBuffer buffer, Tensor row);
  void RemoteStore(RemoteBuffer buffer, Tensor value, Tensor row);
  // Keeps a value for the gradients where others are computed again (compiler.h: Recomputation).
  void Checkpoint(Tensor value);
  // A tensor of equal elements.
  Tensor Constant(TensorType type, double value);
  // A tensor of these elements, row-major and little-endian. The elements are part of the
  // executable and no state. Constants with the same type and bytes are one value on each IPU and
  // stage; a tensor whose elements are all equal becomes a constant as above.
  Tensor Constant(TensorType type, std::string elements);
  // Sends a value to the host each time the model runs.
  void Output(absl::string_view name, Tensor value);

  // --- Operations ---
  // Matrices are the last two dimensions; those before are broadcast.
  Tensor MatMul(Tensor a, Tensor b, bool transpose_a = false, bool transpose_b = false);
  // Images [batch, channels, one to three spatial dimensions], weights [outputs, channels / groups,
  // kernel…].
  Tensor Convolution(Tensor image, Tensor weights, const v1::SlidingWindow& window,
                     uint32_t groups = 1);
  Tensor MaxPool(Tensor image, const v1::SlidingWindow& window);
  // The largest elements and their places, INT32: the number of the pixel among the image's
  // spatial positions in row-major order.
  struct Pooled {
    Tensor output, indices;
  };
  Pooled MaxPoolWithIndices(Tensor image, const v1::SlidingWindow& window);
  Tensor AveragePool(Tensor image, const v1::SlidingWindow& window, bool count_padding = true);
  // Windows that divide the image into as many parts as the result has pixels, as PyTorch's
  // adaptive poolings do. `size`: the spatial dimensions of the result.
  Pooled AdaptiveMaxPool(Tensor image, const Dims& size);
  Tensor AdaptiveAveragePool(Tensor image, const Dims& size);
  // [batch, channels, …], normalised over all but the channels, by its own moments or by given
  // ones. The variance is that of the batch, without Bessel's correction.
  struct Normalized {
    Tensor y, mean, variance;
  };
  Normalized BatchNorm(Tensor x, Tensor scale, Tensor offset, float epsilon);
  Tensor BatchNormInference(Tensor x, Tensor scale, Tensor offset, Tensor mean, Tensor variance,
                            float epsilon);
  // [batch, …, features], normalised over the last axis, then scaled and shifted by vectors, unless
  // both are invalid.
  Tensor LayerNorm(Tensor x, Tensor scale, Tensor offset, float epsilon);
  Tensor Softmax(Tensor input, uint32_t axis);
  Tensor LogSoftmax(Tensor input, uint32_t axis);
  Tensor Unary(v1::UnaryOperator function, Tensor input);
  Tensor Binary(v1::BinaryOperator function, Tensor a, Tensor b);
  Tensor Reduce(v1::ReduceOperator function, Tensor input, const std::vector<uint32_t>& axes);
  Tensor ArgMax(Tensor input);
  Tensor Cast(Tensor input, v1::DataType type);
  Tensor Reshape(Tensor input, Dims dims);
  // Returns the same value, through which no gradient flows.
  Tensor Stop(Tensor input);
  // Returns the value of `value` and passes the gradient to `source`, which has the same type.
  // PassBy(rounded, x), for example, is a straight-through rounding.
  Tensor PassBy(Tensor value, Tensor source);
  // a where the condition is true, otherwise b; all are broadcast.
  Tensor Select(Tensor condition, Tensor a, Tensor b);
  // Dimension i of the output is dimension permutation[i] of the input.
  Tensor Transpose(Tensor input, const std::vector<uint32_t>& permutation);
  // `size` elements from `begin` along each dimension, `step` apart (1 where `step` is empty).
  Tensor Slice(Tensor input, const Dims& begin, const Dims& size, Dims step = {});
  Tensor Expand(Tensor input, const Dims& dims);
  Tensor Pad(Tensor input, const Dims& before, const Dims& after, double value = 0);
  Tensor Concat(const std::vector<Tensor>& inputs, uint32_t axis);
  // `size` elements of each of the axes, which ascend, from where `start` says, INT32 [axes]. A
  // start from which the slice leaves the input fails the run.
  Tensor DynamicSlice(Tensor input, Tensor start, const std::vector<uint32_t>& axes,
                      const Dims& size);
  // The destination with `update`, which has its other dimensions, in the place of the slice of
  // that size.
  Tensor DynamicUpdate(Tensor destination, Tensor update, Tensor start,
                       const std::vector<uint32_t>& axes);
  // The slices along an axis that INT32 indices choose, with the dimensions of the indices in the
  // place of the axis. `along`: the indices have the shape of the input but along the axis, and
  // choose for each place, as torch.gather does. An index that does not exist fails the run, with a
  // message that calls it a label of its row if `labels` says that they are.
  Tensor Gather(Tensor input, Tensor indices, uint32_t axis, bool along = false,
                bool labels = false);
  // The destination with an update, which has the shape that Gather gives, combined with the chosen
  // slices one after the other; float16 is added and multiplied in float32.
  Tensor Scatter(v1::Scatter::Combine combine, Tensor destination, Tensor indices, Tensor update,
                 uint32_t axis, bool along = false, bool labels = false);
  // Sums or products (SUM, PRODUCT) of each element and those before it along the axis.
  struct CumulateOptions {
    bool exclusive = false;  // without the element itself
    bool reverse = false;    // and those behind it
  };
  Tensor Cumulate(v1::ReduceOperator function, Tensor input, uint32_t axis,
                  const CumulateOptions& options);
  Tensor Cumulate(v1::ReduceOperator function, Tensor input, uint32_t axis) {
    return Cumulate(function, input, axis, {});
  }
  // The lines along the axis in ascending or descending order, equals as they were, and where the
  // elements were, INT32. The first `count` of each line, or all: torch.topk is descending.
  struct Sorted {
    Tensor values, places;
  };
  Sorted Sort(Tensor input, uint32_t axis, bool descending = false,
              std::optional<int64_t> count = std::nullopt);
  // Each element is its place along the axis; INT32 or FLOAT32.
  Tensor Iota(TensorType type, uint32_t axis);
  // Loss of each row, [n].
  struct CrossEntropyOptions {
    float label_smoothing = 0;
    std::optional<int32_t> ignored_label;  // rows with it have loss 0
  };
  Tensor SoftmaxCrossEntropy(Tensor logits, Tensor labels, const CrossEntropyOptions& options);
  Tensor SoftmaxCrossEntropy(Tensor logits, Tensor labels) {
    return SoftmaxCrossEntropy(logits, labels, {});
  }
  // New elements in each micro-batch and replica of every program, in whatever order programs run:
  // a function of the variable "random/seed" (UINT32 [2], 0 at first), the op and the micro-batch's
  // number in the whole job (RandomState). Repeats after 2^32 micro-batches.
  Tensor Random(v1::Random::Distribution distribution, TensorType type);

  // Across replicas (program.proto: AllReduce …), each tensor along its first dimension. `members`
  // is the size of a group: that of `group`, or the replicas of the job.
  Tensor AllReduce(v1::ReduceOperator function, Tensor input, const v1::ReplicaGroup& group = {});
  Tensor ReduceScatter(v1::ReduceOperator function, Tensor input, uint32_t members,
                       const v1::ReplicaGroup& group = {});
  Tensor AllGather(Tensor input, uint32_t members, const v1::ReplicaGroup& group = {});
  Tensor AllToAll(Tensor input, uint32_t members, const v1::ReplicaGroup& group = {});
  Tensor Broadcast(uint32_t root, Tensor input, const v1::ReplicaGroup& group = {});

  // --- Shorthand ---
  Tensor Relu(Tensor input) { return Unary(v1::RELU, input); }
  Tensor Relu6(Tensor input) { return Unary(v1::RELU6, input); }
  Tensor Silu(Tensor input) { return Unary(v1::SILU, input); }
  Tensor Gelu(Tensor input);  // exact: x / 2 * (1 + erf(x / sqrt(2)))
  Tensor Add(Tensor a, Tensor b) { return Binary(v1::ADD, a, b); }
  Tensor Multiply(Tensor a, Tensor b) { return Binary(v1::MULTIPLY, a, b); }
  Tensor Mean(Tensor input);  // of all elements, a scalar
  Tensor Sum(Tensor input);   // of all elements, a scalar
  // The mean loss of the rows that are not ignored.
  Tensor CrossEntropyLoss(Tensor logits, Tensor labels, const CrossEntropyOptions& options);
  // Sets elements to zero with this probability and scales the others up by what is missing.
  Tensor Dropout(Tensor input, float probability);
  // A window that is the same along `rank` spatial dimensions.
  static v1::SlidingWindow Sliding(int rank, uint32_t kernel, uint32_t stride = 1,
                                   uint32_t padding = 0, uint32_t dilation = 1);

  // Adds the reverse-mode gradient of the sum of `loss`, each element times that of `scale`
  // (FLOAT32, a scalar or of the loss's shape) if there is one, and returns the gradient of each of
  // `wanted`, in its type. The gradient of a value that does not influence the loss is absent: an
  // invalid tensor. Operations without a derivative (comparisons, arg-max, integer casts) stop the
  // gradient.
  std::vector<Tensor> Gradients(Tensor loss, absl::Span<const Tensor> wanted, Tensor scale = {});
  // The same before the gradients by different uses of a variable or input are added: none for a
  // value that does not influence the loss.
  std::vector<std::vector<Tensor>> GradientsOfUses(Tensor loss, absl::Span<const Tensor> wanted,
                                                   Tensor scale = {});
  // Their sum, on the IPU of the value: added up in float32, so that it is rounded once. A single
  // gradient stays as it is; invalid if there is none.
  Tensor SumOfUses(Tensor value, const std::vector<Tensor>& gradients);
  // The same in the type of the value.
  Tensor GradientOf(Tensor value, const std::vector<Tensor>& gradients);

  // Gradients that the program defines, as by torch.autograd.Function. The outputs equal `values`;
  // their gradients, for which the cotangents stand, reach `inputs` only by way of the operations
  // that RecordRegion adds.
  struct Region {
    uint32_t number = ~0u;
    std::vector<Tensor> outputs, cotangents;
  };
  Region AddRegion(const std::vector<Tensor>& values, const std::vector<Tensor>& inputs);
  // Calls `record` at once, and only here. It returns the gradient of each input, in its type, or
  // an invalid tensor for none. The operations that it adds read the cotangents and any values of
  // the graph, also later ones, and belong to the last stage among those of the values and inputs.
  // Nothing else reads what they make. The gradient of an output that influences no loss is zeros.
  void RecordRegion(const Region& region, const std::function<std::vector<Tensor>()>& record);

  // --- For the gradients and the compiler ---
  // The values from which random numbers on the current IPU follow.
  struct RandomState {
    Tensor seed;  // UINT32 [2], a buffer
    // UINT32, a buffer: micro-batches that this replica has had in programs that train or read it
    Tensor counter;
    Tensor first;        // UINT32: counter * replicas, equal on all replicas
    Tensor micro_batch;  // UINT32: the number of this one in the job, `first` + replica
  };
  const RandomState& GetRandomState();
  // How many replicas the job has: 1, unless the compiler says so.
  void SetReplicas(uint32_t replicas);
  // A copy, which later operations do not move.
  TensorType TypeOf(Tensor tensor) const { return values_[tensor.id].type; }
  // The value whose bytes a reshape shares: that value itself if it is none.
  uint32_t RootOf(uint32_t id) const {
    while (values_[id].alias_of != ~0u) id = values_[id].alias_of;
    return id;
  }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& variables() const { return variables_; }
  const std::vector<Tensor>& buffers() const { return buffers_; }
  const std::vector<Assignment>& assignments() const { return assignments_; }
  // By their numbers.
  const std::vector<GradientRegion>& regions() const { return regions_; }
  // The remote buffers of each IPU, by index.
  const std::map<uint32_t, std::vector<v1::RemoteBuffer>>& remote_buffers() const {
    return remote_buffers_;
  }
  // The parts of the model to which nodes belong; a gradient belongs to that of its operation.
  OriginTable& origins() { return origins_; }
  const OriginTable& origins() const { return origins_; }
  // Replaces the operations by others in an order of execution: passes leave some out or fuse them.
  void SetNodes(std::vector<Node> nodes) { nodes_ = std::move(nodes); }
  // Replaces the assignments by the ones that one program makes.
  void SetAssignments(std::vector<Assignment> assignments) {
    assignments_ = std::move(assignments);
  }
  // The initial value of a variable or buffer of a graph that has them.
  const InitialValue& InitialOf(Tensor variable) const { return initial_.at(variable.id); }
  // Adds an operation, whose attributes are given; its outputs have the types that its rule infers.
  std::vector<Tensor> AddOperation(v1::Instruction attributes, std::vector<Tensor> inputs);
  // As above, with one output, of an operation whose inputs do not determine its type.
  Tensor AddOperation(v1::Instruction attributes, const std::vector<Tensor>& inputs,
                      TensorType output);
  // A new value like another, to be made by a node; or a reshape of `source`.
  Tensor AddLike(Tensor value, Tensor source = {});
  Tensor Fail(absl::Status status);
  // Sums `tensor` over the axes that broadcasting to its shape added to `type`.
  Tensor ReduceToType(Tensor tensor, TensorType type);

 private:
  // The image with the padding that is not below the extent of a window, which the device's
  // convolution does not take; the window keeps the rest.
  Tensor PadBeyondWindows(Tensor image, v1::SlidingWindow& window);
  Tensor OverAxis(Tensor input, uint32_t axis, const v1::Instruction& op);
  Tensor AddCollective(v1::Instruction attributes, Tensor input, uint32_t members);
  // The only output of an operation.
  Tensor AddSimple(v1::Instruction attributes, std::vector<Tensor> inputs);
  Tensor NewValue(TensorType type);
  // Makes an alias on the IPU of `of`.
  Tensor NewAlias(TensorType type, Tensor of, Tensor gradient_to);
  // Null, with an error, unless the buffer is one of the IPU that operations belong to now.
  const v1::RemoteBuffer* FindRemoteBuffer(RemoteBuffer buffer, absl::string_view op);
  // Whether they are values of this graph and nothing went wrong yet; `op` is what needs them.
  bool Usable(absl::Span<const Tensor> tensors, absl::string_view op);
  // The same of what a gradient region cannot do; fails while one is recorded.
  bool UsableOutsideRegions(absl::Span<const Tensor> tensors, absl::string_view op);
  // Fails with the name of what was asked for in this scope.
  Tensor Refuse(absl::string_view op, absl::string_view why);
  Tensor NewNamed(absl::string_view name, TensorType type, Origin origin);
  // `kind` is what messages call it.
  Tensor NewState(absl::string_view kind, absl::string_view name, TensorType type,
                  InitialValue initial);

  // Adds what a region passes back to its inputs.
  void AddRegionGradients(const GradientRegion& region, GradientMap& gradients);
  // Adds the operations of a region with the gradients of its outputs, and returns those of its
  // inputs.
  std::vector<Tensor> CopyRegion(const GradientRegion& region,
                                 const std::vector<Tensor>& cotangents);
  // Gradients by different uses of a value, with their products joined.
  std::vector<Tensor> Joined(const std::vector<Tensor>& gradients);
  // The origin of an operation that is added now.
  v1::Origin OriginOf(absl::string_view op) const;
  void AddNode(v1::Instruction instruction);

  absl::Status status_;
  uint32_t ipu_ = 0, stage_ = 0;
  std::string scope_;
  OriginTable origins_;
  const v1::Origin* backward_of_ = nullptr;  // while gradients of this operation are added
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<GradientRegion> regions_;
  uint32_t recording_ = ~0u;  // the region to which operations are added; ~0u: none
  std::vector<Tensor> inputs_, variables_, buffers_;
  std::multimap<size_t, uint32_t> constants_;  // with elements, by their hash
  std::map<uint32_t, RandomState> random_;     // by IPU
  Tensor replicas_, stream_;                   // constants that these read
  uint32_t random_ops_ = 0;                    // of all IPUs, whose seeds may be the same
  std::vector<Assignment> assignments_;
  std::map<uint32_t, std::vector<v1::RemoteBuffer>> remote_buffers_;  // by IPU
  std::vector<GraphOutput> outputs_;
  std::map<uint32_t, InitialValue> initial_;  // by variable or buffer
};

}  // namespace vpod::graph
