"""Data sets and options for the tests of loaders."""

import time
import types

import torch

# Seconds after which a test gives up waiting; nothing is measured with it.
PATIENCE = 600


class Options:
    """What a loader reads of a poptorch.Options."""

    def __init__(
        self, iterations=1, replicas=1, accumulation=1, group=1, process=(0, 1), seed=None
    ):
        self.device_iterations = iterations
        self.replication_factor = replicas
        self.input_group_size = group
        self.Training = types.SimpleNamespace(gradient_accumulation=accumulation)
        self.Distributed = types.SimpleNamespace(processId=process[0], numProcesses=process[1])
        self.frozen = False
        if seed is not None:
            self.random_seed = seed

    def exists(self, name):
        return hasattr(self, name)

    def _freeze(self):
        self.frozen = True


class Numbers(torch.utils.data.Dataset):
    """Element i is a tensor filled with i."""

    def __init__(self, length, shape=(2, 3), dtype=torch.float32):
        self.length, self.shape, self.dtype = length, shape, dtype

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index >= self.length:
            raise IndexError(index)
        return torch.full(self.shape, index, dtype=self.dtype)


class LabelledNumbers(Numbers):
    """Element i is a pair of tensors filled with i, the second of them an integer."""

    def __getitem__(self, index):
        return super().__getitem__(index), torch.full((1,), index, dtype=torch.long)


class NumbersByName(Numbers):
    """Element i is a dictionary of two tensors filled with i."""

    def __getitem__(self, index):
        return {"data": super().__getitem__(index), "label": torch.full((1,), index)}


class StreamOfNumbers(torch.utils.data.IterableDataset):
    """Yields tensors filled with start, start + 1 …; it has no length."""

    def __init__(self, length, shape=(2, 3)):
        self.length, self.shape, self.start = length, shape, 0

    def __iter__(self):
        for index in range(self.start, self.start + self.length):
            yield torch.full(self.shape, float(index))


class StreamWithLength(StreamOfNumbers):
    """A StreamOfNumbers that knows its length."""

    def __len__(self):
        return self.length


def take_shard(worker):
    """Gives each worker its own part of a StreamOfNumbers."""
    info = torch.utils.data.get_worker_info()
    total = info.dataset.length
    share = -(-total // info.num_workers)
    info.dataset.start = share * worker
    info.dataset.length = max(0, min(share, total - share * worker))


class Failing(Numbers):
    """Its element `index` cannot be loaded."""

    def __init__(self, length, index, error=ValueError):
        super().__init__(length)
        self.index, self.error = index, error

    def __getitem__(self, index):
        if index == self.index:
            raise self.error(f"element {index} is broken")
        return super().__getitem__(index)


def first_numbers(batch):
    """The first number of each row of a batch, as integers."""
    return [int(row.flatten()[0]) for row in batch]


def wait_until(condition):
    """Waits until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it never came")
        time.sleep(0.02)
