"""Tests of DataLoader in mode Sync: batch sizes, ranges of processes, samplers, refusals."""

import unittest

import torch

from poptorch._data.batch_sizes import Factors, micro_batch_size
from poptorch._data.dataloader import DataLoader
from poptorch._errors import Error
from poptorch._data.partition import PartitionSampler

from loader_testing import (
    LabelledNumbers,
    Numbers,
    NumbersByName,
    Options,
    StreamOfNumbers,
    StreamWithLength,
    Failing,
    first_numbers,
    take_shard,
)


def _indices(loader):
    return [index for batch in loader for index in first_numbers(batch)]


class BatchSizesTest(unittest.TestCase):
    def test_product(self):
        options = Options(iterations=4, replicas=6, accumulation=3, group=2)
        self.assertEqual(Factors.of(options).product, 4 * 3 * 3)
        self.assertEqual(micro_batch_size(options, "x", 180), 5)

    def test_the_error_has_the_product_and_the_row_that_disagrees(self):
        with self.assertRaises(AssertionError) as caught:
            micro_batch_size(Options(iterations=4, replicas=2, accumulation=3), "labels", 100)
        text = str(caught.exception)
        self.assertTrue(
            text.startswith(
                "Invalid batch dimension: In the input labels, the batch dimension (100) must be a"
                " multiple of Options.deviceIterations(4) * (Options.replicationFactor(2) /"
                " Options.inputReplicaGrouping.input_group_size(1)) *"
                " Options.Training.gradientAccumulation(3) = 24\n"
            ),
            text,
        )
        self.assertEqual(
            text.splitlines()[-1],
            "  rows of labels         100 = 24 × 4 + 4, accepted are 96 (batch_size=4) or 120"
            " (batch_size=5)",
        )

    def test_fewer_rows_than_the_product(self):
        text = r"1 = 2 × 0 \+ 1, accepted are 2 \(batch_size=1\)$"
        with self.assertRaisesRegex(AssertionError, text):
            micro_batch_size(Options(iterations=2), "x", 1)


class SyncTest(unittest.TestCase):
    def test_combined_batches(self):
        options = Options(iterations=5, replicas=2, accumulation=2)
        loader = DataLoader(options, Numbers(100), batch_size=2)
        self.assertTrue(options.frozen)
        self.assertIs(loader.options, options)
        self.assertEqual(loader.combinedBatchSize, 40)
        self.assertEqual(len(loader), 2)
        batches = list(loader)
        self.assertEqual([batch.shape for batch in batches], [torch.Size([40, 2, 3])] * 2)
        self.assertEqual(_indices(batches), list(range(80)))
        loader.terminate()

    def test_replicas_that_share_an_input_count_once(self):
        loader = DataLoader(Options(replicas=4, group=2), Numbers(9))
        self.assertEqual(loader.combinedBatchSize, 2)

    def test_workers(self):
        loader = DataLoader(Options(iterations=2), Numbers(11), batch_size=2, num_workers=2)
        self.assertTrue(loader.persistent_workers)
        for _ in range(2):
            self.assertEqual(_indices(loader), list(range(8)))

    def test_incomplete_batch_is_kept_with_a_warning(self):
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            loader = DataLoader(Options(iterations=3), Numbers(11), batch_size=2, drop_last=False)
        self.assertIn(
            "The number of elements in the dataset (11) is not divisible by the number of elements"
            " processed per step (6) and drop_last=False. The last tensor will have a batch size"
            " of 5.",
            logs.output[0],
        )
        self.assertEqual(len(loader), 2)
        self.assertEqual([len(batch) for batch in loader], [6, 5])

    def test_one_element_too_few_gives_no_batch(self):
        loader = DataLoader(Options(iterations=3), Numbers(5), batch_size=2)
        self.assertEqual(len(loader), 0)
        self.assertEqual(list(loader), [])

    def test_dropped_elements_are_logged(self):
        with self.assertLogs("poptorch::python", "INFO") as logs:
            DataLoader(Options(iterations=3), Numbers(11), batch_size=2)
        self.assertIn("5 of 11 elements are dropped per epoch", logs.output[0])

    def test_shuffle(self):
        loader = DataLoader(Options(), Numbers(64), batch_size=8, shuffle=True)
        first = _indices(loader)
        self.assertNotEqual(first, list(range(64)))
        self.assertEqual(sorted(first), list(range(64)))

    def test_structures(self):
        options = Options(iterations=3)
        data, labels = next(iter(DataLoader(options, LabelledNumbers(7), batch_size=2)))
        self.assertEqual(data.shape, torch.Size([6, 2, 3]))
        self.assertEqual(labels.flatten().tolist(), list(range(6)))
        by_name = next(iter(DataLoader(options, NumbersByName(7), batch_size=2)))
        self.assertEqual(list(by_name), ["data", "label"])
        self.assertEqual(by_name["label"].shape, torch.Size([6, 1]))

    def test_without_batch_size(self):
        loader = DataLoader(Options(iterations=3), Numbers(4), batch_size=None, drop_last=False)
        self.assertIsNone(loader.combinedBatchSize)
        self.assertEqual([batch.shape for batch in loader], [torch.Size([2, 3])] * 4)

    def test_error_of_the_data_set_keeps_its_type(self):
        for workers in (0, 1):
            loader = DataLoader(Options(), Failing(4, 2), num_workers=workers)
            with self.assertRaisesRegex(ValueError, "element 2 is broken"):
                list(loader)

    def test_first_argument_must_be_options(self):
        with self.assertRaisesRegex(TypeError, "must be a poptorch.Options, but is a Numbers"):
            DataLoader(Numbers(4), batch_size=2, dataset=Numbers(4))


class IterableTest(unittest.TestCase):
    def test_shards_of_workers(self):
        loader = DataLoader(
            Options(iterations=2),
            StreamWithLength(23),
            batch_size=2,
            num_workers=2,
            worker_init_fn=take_shard,
        )
        for _ in range(2):
            # Each worker leaves its own incomplete batch out: 12 and 11 elements give 3 and 2.
            self.assertEqual(sorted(_indices(loader)), list(range(12)) + list(range(12, 20)))
        self.assertEqual(len(loader), 5)

    def test_warning_of_repeated_elements(self):
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            DataLoader(Options(), StreamOfNumbers(4), num_workers=3)
        self.assertIn(
            "IterableDataset used with num_workers=3 but no worker_init_fn specified: as a result"
            " the DataLoader will return 3 times each element in the dataset",
            logs.output[0],
        )

    def test_no_length(self):
        loader = DataLoader(Options(), StreamOfNumbers(4), batch_size=None, drop_last=False)
        with self.assertRaisesRegex(TypeError, r"'StreamOfNumbers' has no len\(\)"):
            len(loader)

    def test_no_automatic_ranges(self):
        options = Options(process=(0, 2))
        with self.assertRaisesRegex(AssertionError, "not supported for IterableDataset"):
            DataLoader(options, StreamOfNumbers(4))
        loader = DataLoader(options, StreamOfNumbers(4), auto_distributed_partitioning=False)
        self.assertEqual(_indices(loader), [0, 1, 2, 3])


class DistributedTest(unittest.TestCase):
    def _loaders(self, processes, elements, **arguments):
        seed = arguments.pop("seed", None)
        return [
            DataLoader(
                Options(process=(process, processes), seed=seed), Numbers(elements), **arguments
            )
            for process in range(processes)
        ]

    def test_contiguous_ranges_of_equal_length(self):
        loaders = self._loaders(3, 100, batch_size=4)
        self.assertEqual([len(loader) for loader in loaders], [8, 8, 8])
        self.assertEqual([i for loader in loaders for i in _indices(loader)], list(range(96)))

    def test_without_drop_last_all_elements_are_dealt_evenly(self):
        loaders = self._loaders(3, 101, batch_size=4, drop_last=False)
        shares = [_indices(loader) for loader in loaders]
        self.assertEqual([len(share) for share in shares], [34, 34, 33])
        self.assertEqual(sum(shares, []), list(range(101)))

    def test_two_shuffled_epochs_read_every_element(self):
        for seed in range(8):
            loaders = self._loaders(3, 107, batch_size=8, shuffle=True, seed=seed)
            epochs = [[_indices(loader) for loader in loaders] for _ in range(4)]
            for epoch in epochs:
                read = sum(epoch, [])
                self.assertEqual(len(read), 96)
                self.assertEqual(len(set(read)), 96)
            for first, second in ((0, 1), (2, 3)):
                self.assertEqual(set(sum(epochs[first] + epochs[second], [])), set(range(107)))
            self.assertEqual(len({tuple(epoch[0]) for epoch in epochs}), 4)

    def test_workers_that_persist_see_each_permutation(self):
        alone, with_workers = (
            self._loaders(2, 40, batch_size=4, shuffle=True, seed=3, num_workers=workers)[1]
            for workers in (0, 2)
        )
        for _ in range(3):
            self.assertEqual(_indices(alone), _indices(with_workers))

    def test_many_left_over_elements(self):
        # 144 elements of 5 processes in steps of 16: 64 are left over, more than one range.
        samplers = [
            PartitionSampler(144, 16, 5, process, drop_last=True, shuffle=True, seed=1)
            for process in range(5)
        ]
        read = set()
        for _ in range(2):
            for sampler in samplers:
                read.update(sampler)
        self.assertEqual(read, set(range(144)))

    def test_one_element_too_few_for_all_processes(self):
        with self.assertRaisesRegex(ValueError, "has 23 elements, but 3 processes .* at least 24"):
            self._loaders(3, 23, batch_size=8)
        self.assertEqual(len(self._loaders(3, 24, batch_size=8)[2]), 1)

    def test_refusals(self):
        with self.assertRaisesRegex(AssertionError, "you must set poptorch.Options.randomSeed"):
            self._loaders(2, 8, shuffle=True)
        with self.assertRaisesRegex(AssertionError, "batch_size=None not allowed"):
            self._loaders(2, 8, batch_size=None, drop_last=False)
        with self.assertRaisesRegex(Error, "`sampler` option is mutually exclusive"):
            self._loaders(2, 8, sampler=[1, 2])

    def test_ranges_made_by_hand(self):
        loader = self._loaders(2, 8, sampler=[5, 2], auto_distributed_partitioning=False)[1]
        self.assertEqual(_indices(loader), [5, 2])


class BatchSamplerTest(unittest.TestCase):
    def _sampler(self, elements, batch_size, drop_last=False):
        sequence = torch.utils.data.SequentialSampler(range(elements))
        return torch.utils.data.BatchSampler(sequence, batch_size, drop_last)

    def test_micro_batches_are_joined(self):
        for drop_last, rows in ((True, [12, 12]), (False, [12, 12, 5])):
            loader = DataLoader(
                Options(iterations=4),
                LabelledNumbers(29),
                batch_sampler=self._sampler(29, 3),
                drop_last=drop_last,
                num_workers=1,
            )
            self.assertEqual(loader.combinedBatchSize, 12)
            batches = list(loader)
            self.assertEqual([len(data) for data, _ in batches], rows)
            self.assertEqual(len(loader), len(rows))
            labels = torch.cat([labels for _, labels in batches]).flatten().tolist()
            self.assertEqual(labels, list(range(sum(rows))))

    def test_no_batch_is_a_warning(self):
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            loader = DataLoader(Options(iterations=4), Numbers(11), batch_size=3)
        self.assertIn("no batch, as the dataset has 11 elements and a call takes 12", *logs.output)
        self.assertEqual(len(loader), 0)

    def test_warnings(self):
        def load(sampler):
            with self.assertLogs("poptorch::python", "WARNING") as logs:
                options = Options(iterations=4)
                DataLoader(options, Numbers(9), batch_sampler=sampler, drop_last=False)
            return logs.output[0]

        self.assertIn("generated by the batch sampler (3) is not", load(self._sampler(9, 3)))
        self.assertIn(
            "The `batch_sampler` __len__ method is not implemented and drop_last=False.",
            load(iter([[1, 2]])),
        )

    def test_exclusions(self):
        sampler = self._sampler(9, 3)
        for arguments in ({"batch_size": 2}, {"shuffle": True}):
            with self.assertRaisesRegex(Error, "mutually exclusive with batch_size, shuffle"):
                DataLoader(Options(), Numbers(9), batch_sampler=sampler, **arguments)
        options = Options(process=(0, 2))
        with self.assertRaisesRegex(Error, "exclusive with auto_distributed_partitioning=True"):
            DataLoader(options, Numbers(9), batch_sampler=sampler)
        loader = DataLoader(
            options, Numbers(9), batch_sampler=sampler, auto_distributed_partitioning=False
        )
        self.assertEqual(_indices(loader), list(range(9)))


if __name__ == "__main__":
    unittest.main()
