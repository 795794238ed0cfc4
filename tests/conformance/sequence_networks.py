"""The networks of client/models that take sequences, in PyTorch and with the same parameter names. None has dropout."""

import torch
from torch import nn
from torch.nn import functional


class RecurrentClassifier(nn.Module):
    """Takes tokens with `vocabulary`, otherwise features. `kind` is the name of its layers."""

    def __init__(self, kind, features=24, vocabulary=0, hidden=32, classes=10, **options):
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(vocabulary, features) if vocabulary else nn.Identity()
        layers = {"lstm": nn.LSTM, "gru": nn.GRU}[kind](features, hidden, batch_first=True, **options)
        setattr(self, kind, layers)
        self.fc = nn.Linear(hidden * (2 if layers.bidirectional else 1), classes)

    def forward(self, x):
        return self.fc(getattr(self, self.kind)(self.embedding(x))[0][:, -1])


def attend(queries, keys, values, heads, mask):
    """Takes and gives [batch, tokens, width]; the mask is added to the scores."""
    queries, keys, values = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (queries, keys, values))
    scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5 + mask
    return (scores.softmax(3) @ values).transpose(1, 2).flatten(2)


class Projected(nn.Module):
    """The end of both halves of a layer of BERT."""

    def __init__(self, inputs, width):
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, past):
        return self.LayerNorm(self.dense(x) + past)


class BertLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.attention = nn.ModuleDict({
            "self": nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")}),
            "output": Projected(width, width),
        })
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = Projected(inner, width)

    def forward(self, x, mask):
        own = self.attention["self"]
        mixed = attend(own["query"](x), own["key"](x), own["value"](x), self.heads, mask)
        x = self.attention["output"](mixed, x)
        return self.output(functional.gelu(self.intermediate["dense"](x)), x)


class Bert(nn.Module):
    def __init__(self, vocabulary=100, positions=16, width=128, heads=2, inner=512, layers=2, pooler=True):
        super().__init__()
        self.embeddings = nn.ModuleDict({
            "word_embeddings": nn.Embedding(vocabulary, width),
            "position_embeddings": nn.Embedding(positions, width),
            "token_type_embeddings": nn.Embedding(2, width),
            "LayerNorm": nn.LayerNorm(width, eps=1e-12),
        })
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(BertLayer(width, heads, inner) for _ in range(layers))})
        if pooler:
            self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)})

    def forward(self, tokens, token_types, attended):
        tables = self.embeddings
        x = tables["word_embeddings"](tokens) + tables["token_type_embeddings"](token_types)
        x = tables["LayerNorm"](x + tables["position_embeddings"].weight[: tokens.shape[1]])
        mask = (1 - attended.to(x.dtype))[:, None, None] * -10000
        for layer in self.encoder["layer"]:
            x = layer(x, mask)
        return x


class BertForClassification(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.bert = Bert()
        self.classifier = nn.Linear(128, classes)

    def forward(self, *inputs):
        return self.classifier(self.bert.pooler["dense"](self.bert(*inputs)[:, 0]).tanh())


class MaskedLanguageHead(nn.Module):
    def __init__(self, width, vocabulary):
        super().__init__()
        self.transform = nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12)})
        self.bias = nn.Parameter(torch.empty(vocabulary))

    def forward(self, x, words):
        x = self.transform["LayerNorm"](functional.gelu(self.transform["dense"](x)))
        return functional.linear(x, words, self.bias)


class BertForMaskedLanguage(nn.Module):
    def __init__(self, vocabulary=100):
        super().__init__()
        self.bert = Bert(vocabulary, pooler=False)
        self.cls = nn.ModuleDict({"predictions": MaskedLanguageHead(128, vocabulary)})

    def forward(self, *inputs):
        return self.cls["predictions"](self.bert(*inputs), self.bert.embeddings["word_embeddings"].weight)


class Conv1D(nn.Module):
    """A linear layer with weights [inputs, outputs]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def forward(self, x, mask):
        y = attend(*self.attn["c_attn"](self.ln_1(x)).chunk(3, 2), self.heads, mask)
        x = x + self.attn["c_proj"](y)
        y = functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](y)


class Gpt2(nn.Module):
    def __init__(self, vocabulary=100, positions=16, width=64, heads=4, layers=2):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width),
            "wpe": nn.Embedding(positions, width),
            "h": nn.ModuleList(Gpt2Block(width, heads) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width),
        })

    def forward(self, tokens):
        parts, count = self.transformer, tokens.shape[1]
        x = parts["wte"](tokens) + parts["wpe"].weight[:count]
        mask = torch.full((count, count), -10000, dtype=x.dtype).triu(1)
        for block in parts["h"]:
            x = block(x, mask)
        return functional.linear(parts["ln_f"](x), parts["wte"].weight)
