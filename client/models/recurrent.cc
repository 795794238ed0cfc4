#include "client/models/recurrent.h"

namespace vpod::models {

using graph::Graph;
using graph::Tensor;
using nn::Builder;

namespace {

Tensor Embed(const Builder& net, Tensor sequences, const RecurrentClassifierOptions& options) {
  if (options.vocabulary == 0) return sequences;
  return net.Embedding("embedding", sequences, options.vocabulary, options.embedding, options.type);
}

}  // namespace

Tensor LstmClassifier(const Builder& net, Tensor sequences,
                      const RecurrentClassifierOptions& options) {
  const Graph::Scope scope = net.EnterScope();
  const Tensor x = Embed(net, sequences, options);
  const nn::Recurrent layers = nn::Lstm(net, "lstm", x, options.hidden, options.recurrent);
  return net.Linear("fc", layers.last, options.classes);
}

Tensor GruClassifier(const Builder& net, Tensor sequences,
                     const RecurrentClassifierOptions& options) {
  const Graph::Scope scope = net.EnterScope();
  const Tensor x = Embed(net, sequences, options);
  const nn::Recurrent layers = nn::Gru(net, "gru", x, options.hidden, options.recurrent);
  return net.Linear("fc", layers.last, options.classes);
}

}  // namespace vpod::models
