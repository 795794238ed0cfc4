"""The example's network and micro-batch in PyTorch eager mode: the peer of the training benchmark.

Trains on micro-batches of 16 images as one of the 16 replicas does, on all cores, and prints images/s.
"""

import sys
import time

import torch
from torch import nn

MICRO_BATCH = 16
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1500

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(7 * 7 * 32, 10),
)
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images = torch.rand(64, MICRO_BATCH, 1, 28, 28) - 0.5
labels = torch.randint(0, 10, (64, MICRO_BATCH))


def step(i):
    optimizer.zero_grad()
    loss = loss_function(model(images[i % 64]), labels[i % 64])
    loss.backward()
    optimizer.step()


for i in range(50):
    step(i)
start = time.perf_counter()
for i in range(STEPS):
    step(i)
seconds = time.perf_counter() - start
print(f"{STEPS * MICRO_BATCH / seconds:.0f}")
