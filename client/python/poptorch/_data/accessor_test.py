"""Tests of AsynchronousDataAccessor, and of DataLoader in the modes that use it."""

import collections
import contextlib
import gc
import os
import signal
import unittest

import torch

from poptorch import DataLoaderMode, Error, SharingStrategy
from poptorch._data import batch_structure
from poptorch._data.accessor import AsynchronousDataAccessor
from poptorch._custom_parsers import ICustomArgParser, registerCustomArgParser
from poptorch._data.dataloader import DataLoader

from loader_testing import (
    Failing,
    LabelledNumbers,
    Numbers,
    NumbersByName,
    Options,
    StreamOfNumbers,
    StreamWithLength,
    first_numbers,
    take_shard,
    wait_until,
)

Pair = collections.namedtuple("Pair", "left right")


class Sample:
    """A batch type of a user, with a parser."""

    def __init__(self, data, name):
        self.data, self.name = data, name


class SampleParser(ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.data

    def reconstruct(self, original_structure, tensor_iterator):
        return Sample(next(tensor_iterator), original_structure.name)


registerCustomArgParser(Sample, SampleParser())


class UnknownElsewhere(Exception):
    """An error that cannot be made from a text, as some of libraries cannot."""

    def __init__(self, first, second):
        super().__init__(first, second)


class Batches(torch.utils.data.Dataset):
    """Any objects as batches."""

    def __init__(self, *batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


class SparseRows(Numbers):
    """Tensors that the ring cannot hold."""

    def __getitem__(self, index):
        return super().__getitem__(index).to_sparse()


class ErrorOfTwoArguments(Numbers):
    def __getitem__(self, index):
        if index == 1:
            raise UnknownElsewhere("left", "right")
        return super().__getitem__(index)


class SizesSampler:
    """Micro-batches of 1, 2, 3, 1, 2 … indices."""

    batch_size = 3

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        start, size = 0, 1
        while start < self.length:
            yield list(range(start, min(start + size, self.length)))
            start, size = start + size, size % 3 + 1


@contextlib.contextmanager
def _accessor(dataset, **arguments):
    accessor = AsynchronousDataAccessor(dataset, **arguments)
    try:
        yield accessor
    finally:
        accessor.terminate()


@contextlib.contextmanager
def _loader(dataset, *arguments, options=None, mode=DataLoaderMode.Async, **named):
    loader = DataLoader(options or Options(), dataset, *arguments, mode=mode, **named)
    try:
        yield loader
    finally:
        loader.terminate()


def _numbers(batches):
    return [first_numbers(batch) for batch in batches]


class IterationTest(unittest.TestCase):
    def test_same_batches_as_sync(self):
        options = Options(iterations=3)
        expected = [[6 * i + j for j in range(6)] for i in range(5)]
        for workers in (0, 2):
            for load_indefinitely in (True, False):
                with _loader(
                    Numbers(33),
                    2,
                    options=options,
                    num_workers=workers,
                    async_options={"load_indefinitely": load_indefinitely},
                ) as loader:
                    self.assertEqual(len(loader), 5)
                    for _ in range(3):
                        self.assertEqual(_numbers(loader), expected)

    def test_rings_of_any_size(self):
        for size in (1, 2, 9):
            for early in (False, True):
                with _accessor(Numbers(4, ()), buffer_size=size, early_preload=early) as accessor:
                    self.assertEqual(len(accessor), 4)
                    for _ in range(3):
                        self.assertEqual([int(number) for number in accessor], [0, 1, 2, 3])

    def test_after_the_end(self):
        with _accessor(Numbers(2, ())) as accessor:
            iterator = iter(accessor)
            self.assertEqual(len(iterator), 2)
            self.assertEqual(int(next(iterator)), 0)
            # Iterating an iterator goes on; iterating the accessor starts anew.
            self.assertEqual([int(number) for number in iterator], [1])
            for ended in (iterator, accessor):
                with self.assertRaises(StopIteration):
                    next(ended)
            self.assertEqual([int(number) for number in accessor], [0, 1])
            newer = iter(accessor)
            self.assertEqual(int(next(newer)), 0)
            self.assertEqual(list(iterator), [])
            self.assertEqual(int(next(newer)), 1)

    def test_leaving_a_loop(self):
        for persistent in (True, False):
            for leave_at in (0, 4, 9):
                with _loader(
                    Numbers(10), num_workers=1, persistent_workers=persistent
                ) as loader:
                    for i, batch in enumerate(loader):
                        self.assertEqual(first_numbers(batch), [i])
                        if i == leave_at:
                            break
                    self.assertEqual(_numbers(loader), [[i] for i in range(10)])

    def test_an_unused_iterator_starts_nothing_anew(self):
        with _accessor(StreamOfNumbers(5, ())) as accessor:
            iter(accessor)
            self.assertEqual([int(number) for number in accessor], list(range(5)))

    def test_a_batch_is_valid_until_the_next_one_is_asked_for(self):
        with _accessor(Numbers(20, ()), buffer_size=2) as accessor:
            kept = []
            for i, number in enumerate(accessor):
                # The ring is full now, and the process waits for this batch to be released.
                ring = accessor._worker._data_buffers
                wait_until(lambda: int(ring.indices_mem.sum()) == 2)
                self.assertEqual(int(number), i)
                number.unsqueeze_(0)  # The next batch in this place has a form of its own.
                kept.append(number)
            self.assertEqual([tuple(number.shape) for number in kept], [(1,)] * 20)

    def test_early_preload(self):
        with _accessor(Numbers(10), buffer_size=5) as late:
            with _accessor(Numbers(10), buffer_size=5, early_preload=True) as early:
                ring = early._worker._data_buffers
                wait_until(lambda: sum(ring.indices_mem) == 5)
                self.assertEqual(sum(late._worker._data_buffers.indices_mem), 1)
                self.assertEqual(_numbers(late), _numbers(early))

    def test_shuffled_ranges_are_those_of_sync(self):
        def load(mode):
            options = Options(process=(1, 2), seed=5)
            with _loader(Numbers(43), 4, True, options=options, mode=mode) as loader:
                return [_numbers(loader) for _ in range(3)]

        self.assertEqual(load(DataLoaderMode.Async), load(DataLoaderMode.Sync))

    def test_all_strategies(self):
        for strategy in SharingStrategy:
            with _accessor(LabelledNumbers(5), sharing_strategy=strategy) as accessor:
                for _ in range(2):
                    labels = [int(label) for _, label in accessor]
                    self.assertEqual(labels, list(range(5)), strategy)

    def test_more_tensors_than_a_fork_server_passes_descriptors(self):
        tensors = [torch.tensor(float(i)) for i in range(300)]
        with _accessor(Batches(*tensors)) as accessor:
            self.assertEqual([int(number) for number in accessor], list(range(300)))


class BatchFormTest(unittest.TestCase):
    def _both(self, *batches):
        with _accessor(Batches(*batches)) as accessor:
            return [batch_structure.concatenated([batch, batch]) for batch in accessor]

    def test_structures(self):
        x, y = torch.ones(2), torch.zeros(1)
        self.assertIsInstance(self._both(x)[0], torch.Tensor)
        for kind in (list, tuple):
            got = self._both(kind((x, y)))[0]
            self.assertIs(type(got), kind)
            self.assertEqual([len(tensor) for tensor in got], [4, 2])
        pair = self._both(Pair(x, y))[0]
        self.assertEqual((type(pair).__name__, pair.right.tolist()), ("Pair", [0, 0]))
        named = self._both({"x": x, "y": y}, {"y": y, "x": x * 3})
        self.assertEqual(list(named[1]), ["x", "y"])
        self.assertEqual(named[1]["x"].tolist(), [3, 3, 3, 3])
        sample = self._both(Sample(x, "first"))[0]
        self.assertEqual((sample.name, sample.data.tolist()), ("first", [1, 1, 1, 1]))

    def test_dictionaries_of_a_loader(self):
        for mode in DataLoaderMode:
            with _loader(NumbersByName(9), 4, mode=mode) as loader:
                labels = [batch["label"].flatten().tolist() for batch in loader]
                self.assertEqual(labels, [[0, 1, 2, 3], [4, 5, 6, 7]])

    def test_types(self):
        types = (torch.half, torch.bfloat16, torch.bool, torch.int8, torch.int64, torch.double)
        for dtype in types:
            batches = [torch.tensor([row]).to(dtype) for row in ([0, 1, 1], [1, 0, 1])]
            with _accessor(Batches(*batches)) as accessor:
                for got, batch in zip(accessor, batches):
                    self.assertEqual(got.dtype, dtype)
                    self.assertTrue(torch.equal(got, batch))

    def test_scalars_empty_tensors_and_strides(self):
        matrix = torch.arange(6.0).view(2, 3)
        with _accessor(Batches([torch.tensor(7), torch.empty(0, 4), matrix.t()])) as accessor:
            scalar, empty, transposed = next(iter(accessor))
            self.assertEqual(scalar.item(), 7)
            self.assertEqual(empty.shape, torch.Size([0, 4]))
            self.assertTrue(torch.equal(transposed, matrix.t()))

    def test_fewer_rows(self):
        with _accessor(Batches(torch.ones(3, 2), torch.ones(1, 2), torch.ones(3, 2))) as accessor:
            self.assertEqual([len(batch) for batch in accessor], [3, 1, 3])

    def test_batches_that_differ_are_refused(self):
        first = torch.ones(2, 3)
        for other, text in (
            (torch.ones(3, 3), r"index 0 of a batch is torch.float32 \[3, 3\], but the first"),
            (torch.ones(2, 2), r"\[2, 2\], but the first batch had torch.float32 \[2, 3\] there"),
            (torch.ones(2, 3) * 1j, r"is torch.complex64 \[2, 3\]"),
            ([first, first], "A batch has 2 tensors, but the first one had 1"),
        ):
            with _accessor(Batches(first, other)) as accessor:
                with self.assertRaisesRegex(ValueError, text):
                    list(accessor)
        with _accessor(Batches({"x": first}, {"y": first})) as accessor:
            with self.assertRaisesRegex(ValueError, r"keys \['y'\], but the first one had \['x'\]"):
                list(accessor)

    def test_nested_structures_are_refused(self):
        for dataset, text in (
            (Batches([torch.ones(1), [torch.ones(1)]]), "Tensor at index 1 is not a torch tensor"),
            (Batches({"x": 1}), "Tensor at index 0 is not a torch tensor"),
            (SparseRows(2), "Tensor at index 0 has layout torch.sparse_coo"),
        ):
            with self.assertRaises(Error) as caught:
                AsynchronousDataAccessor(dataset)
            self.assertIn(text, str(caught.exception.__cause__))


class RebatchedTest(unittest.TestCase):
    def test_shards_of_an_iterable_data_set(self):
        for worker_size in (1, 3, None):
            for drop_last in (True, False):
                with _loader(
                    StreamWithLength(23),
                    2,
                    options=Options(iterations=2),
                    mode=DataLoaderMode.AsyncRebatched,
                    num_workers=3,
                    drop_last=drop_last,
                    rebatched_worker_size=worker_size,
                    worker_init_fn=take_shard,
                ) as loader:
                    self.assertEqual(len(loader), 5 if drop_last else 6)
                    for _ in range(2):
                        batches = _numbers(loader)
                        lengths = [4] * 5 if drop_last else [4] * 5 + [3]
                        self.assertEqual([len(batch) for batch in batches], lengths)
                        read = sum(batches, [])
                        self.assertEqual(len(set(read)), len(read))
                        self.assertLessEqual(set(read), set(range(23)))

    def test_the_last_rows_in_mode_async(self):
        with _loader(Numbers(11), 2, options=Options(2), drop_last=False) as loader:
            self.assertEqual(len(loader), 3)
            for _ in range(2):
                self.assertEqual(_numbers(loader), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]])

    def test_leaving_a_loop_drops_the_rows_that_were_begun(self):
        with _accessor(
            DataLoader(Options(), Numbers(10), 3, drop_last=True), rebatched_size=4
        ) as accessor:
            self.assertEqual(len(accessor), 2)
            for _ in range(3):
                for batch in accessor:
                    self.assertEqual(first_numbers(batch), [0, 1, 2, 3])
                    break
            self.assertEqual(_numbers(accessor), [[0, 1, 2, 3], [4, 5, 6, 7]])

    def test_one_element_too_few(self):
        options = Options(iterations=3)
        with _loader(Numbers(5), 2, options=options, mode=DataLoaderMode.AsyncRebatched) as loader:
            self.assertEqual(len(loader), 0)
            for _ in range(2):
                self.assertEqual(list(loader), [])
        with self.assertRaises(Error) as caught:
            DataLoader(options, Numbers(5), 2, mode=DataLoaderMode.Async)
        self.assertIn("The Dataset is empty", str(caught.exception.__cause__))

    def test_batches_of_one_row_need_no_rebatching(self):
        with _loader(Numbers(3), mode=DataLoaderMode.AsyncRebatched) as loader:
            self.assertEqual(_numbers(loader), [[0], [1], [2]])

    def test_unequal_rows(self):
        batches = Batches([torch.ones(2), torch.ones(3)])
        with _accessor(batches, rebatched_size=2) as accessor:
            with self.assertRaisesRegex(ValueError, r"have \[2, 3\] rows"):
                list(accessor)

    def test_batch_samplers(self):
        for drop_last, expected in ((True, [6]), (False, [6, 3])):
            for mode in DataLoaderMode:
                with _loader(
                    Numbers(9),
                    options=Options(iterations=3),
                    mode=mode,
                    batch_sampler=SizesSampler(9),
                    drop_last=drop_last,
                ) as loader:
                    for _ in range(2):
                        batches = _numbers(loader)
                        self.assertEqual([len(batch) for batch in batches], expected)
                        self.assertEqual(sum(batches, []), list(range(sum(expected))))


class ErrorTest(unittest.TestCase):
    def test_error_in_the_middle(self):
        for workers in (0, 2):
            with _loader(Failing(8, 5), num_workers=workers) as loader:
                for _ in range(2):
                    seen = []
                    with self.assertRaises(ValueError) as caught:
                        for batch in loader:
                            seen += first_numbers(batch)
                    self.assertEqual(seen, [0, 1, 2, 3, 4])
                    text = str(caught.exception)
                    self.assertIn("element 5 is broken", text)
                    self.assertIn("in __getitem__", text)

    def test_an_iteration_that_was_left_before_its_error(self):
        with _accessor(Failing(8, 2), early_preload=True) as accessor:
            for _ in range(3):
                for _ in accessor:
                    break
            with self.assertRaisesRegex(ValueError, "element 2 is broken"):
                list(accessor)

    def test_an_error_that_cannot_be_made_from_a_text(self):
        with _accessor(ErrorOfTwoArguments(3)) as accessor:
            with self.assertRaisesRegex(RuntimeError, "UnknownElsewhere.*left.*right"):
                list(accessor)

    def test_first_batch(self):
        for strategy in (SharingStrategy.ForkServer, SharingStrategy.Fork):
            with self.assertRaisesRegex(Error, "worker thread failed to start") as caught:
                AsynchronousDataAccessor(Failing(3, 0), sharing_strategy=strategy)
            self.assertEqual(caught.exception.type, "poptorch_py_error")
            self.assertIsInstance(caught.exception.__cause__, ValueError)
            self.assertIn("element 0 is broken", str(caught.exception.__cause__))

    def test_killed_process(self):
        with _accessor(Numbers(100, ()), buffer_size=3) as accessor:
            iterator = iter(accessor)
            self.assertEqual(int(next(iterator)), 0)
            ring = accessor._worker._data_buffers
            wait_until(lambda: sum(ring.indices_mem) == 3)
            os.kill(accessor._worker._child.pid, signal.SIGKILL)
            wait_until(lambda: not accessor._worker._child.lives)
            # What lies in the ring is not lost.
            self.assertEqual([int(next(iterator)) for _ in range(2)], [1, 2])
            with self.assertRaisesRegex(Error, r"process \d+ was ended by signal 9 \(SIGKILL\)"):
                next(iterator)

    def test_process_that_exits(self):
        with _accessor(Failing(8, 2, SystemExit)) as accessor:
            with self.assertRaisesRegex(Error, "An error occurred in the data fetcher: process"):
                list(accessor)

    def test_terminate(self):
        with _accessor(Numbers(5, ())) as accessor:
            iterator = iter(accessor)
            number = next(iterator)
            child = accessor._worker._child
            accessor.terminate()
            self.assertFalse(child.lives)
            self.assertEqual(int(number), 0)
            accessor.terminate()
            for call in (lambda: iter(accessor), lambda: next(iterator)):
                with self.assertRaisesRegex(AssertionError, "has been terminated"):
                    call()

    def test_the_last_reference_ends_the_process(self):
        loader = DataLoader(Options(), Numbers(5), mode=DataLoaderMode.Async)
        child = loader._accessor._worker._child
        gc.disable()
        try:
            del loader
            self.assertFalse(child.lives)
        finally:
            gc.enable()

    def test_refusals(self):
        def make(*arguments, **named):
            return lambda: AsynchronousDataAccessor(*arguments, **named)

        numbers = Numbers(12)
        keeps_last = DataLoader(Options(2), numbers, drop_last=False)
        with _loader(numbers) as asynchronous:
            with self.assertRaisesRegex(Error, "already uses an AsynchronousDataAccessor intern"):
                AsynchronousDataAccessor(asynchronous)
        rebatched = {"async_options": {"rebatched_size": 2}, "mode": DataLoaderMode.Async}
        size = {"rebatched_worker_size": 5, "mode": DataLoaderMode.AsyncRebatched}
        for call, kind, text in (
            (make(keeps_last), AssertionError, "only works if 'rebatched_size' is specified"),
            (make(numbers, rebatched_size=1), AssertionError, "must be None or greater than 1"),
            (make(numbers, buffer_size=0), ValueError, "buffer_size is 0, must be"),
            (make(numbers, miss_sleep_time_in_ms=-1), ValueError, "is -1, must be a number"),
            (make(numbers, sharing_strategy=9), ValueError, "9 is not a valid SharingStrategy"),
            (
                lambda: DataLoader(Options(), numbers, **rebatched),
                AssertionError,
                "manually specify the rebatched_size",
            ),
            (
                lambda: DataLoader(Options(2), numbers, 2, **size),
                AssertionError,
                r"rebatched_worker_size \(5\) must be <= to the combined batch size \(4\)",
            ),
        ):
            with self.assertRaisesRegex(kind, text):
                call()


if __name__ == "__main__":
    unittest.main()
