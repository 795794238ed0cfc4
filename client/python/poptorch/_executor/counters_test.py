"""Performance counters of models on the IPUModel."""

import os
import unittest

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from poptorch import OutputMode  # pylint: disable=wrong-import-position

_KEYS = ("input", "input_complete", "output", "output_complete")


def _options() -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False)


class Product(nn.Module):
    def forward(self, x, y):
        return torch.matmul(x, y)


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(20, 20)
        self.loss = nn.MSELoss()

    def forward(self, data, target):
        out = self.linear(data)
        return out, self.loss(out, target)


class CountersTest(unittest.TestCase):
    def check(self, model, inputs: int, outputs: int, steps: int, returned: int) -> None:
        """Checks how many times there are, and their order."""
        counters = model.getPerfCounters()
        self.assertEqual(set(counters), set(_KEYS))
        sizes = {key: [len(times) for times in counters[key]] for key in _KEYS}
        self.assertEqual(sizes["input"], [steps] * inputs)
        self.assertEqual(sizes["input_complete"], [steps] * inputs)
        self.assertEqual(sizes["output"], [returned] * outputs)
        self.assertEqual(sizes["output_complete"], [returned] * outputs)
        replicas = model.options.replication_factor
        for of_key in counters.values():
            for times in of_key:
                self.assertEqual(times, sorted(times))
                for index, time in enumerate(times):
                    self.assertEqual(time, times[index // replicas * replicas])
        for key in ("input", "output"):
            for begins, ends in zip(counters[key], counters[key + "_complete"]):
                self.assertTrue(all(begin < end for begin, end in zip(begins, ends)))
        self.assertLess(counters["input_complete"][0][0], counters["output_complete"][0][-1])

    def check_latencies(self, model) -> None:
        for latency in (
            model.getHostIpuLatency(),
            model.getComputeLatency(),
            model.getIpuHostLatency(),
            model.getLatency(),
        ):
            least, most, mean = latency
            self.assertLess(0, least)
            self.assertLessEqual(least, mean)
            self.assertLessEqual(mean, most)
        self.assertLess(model.getHostIpuLatency()[0], model.getLatency()[0])
        self.assertLess(model.getIpuHostLatency()[0], model.getLatency()[0])

    def test_one_call(self):
        model = poptorch.inferenceModel(Product(), _options())
        self.assertEqual(model.getPerfCounters(), {key: [[]] for key in _KEYS})
        self.assertEqual(model.getLatency(), (0.0, 0.0, 0.0))
        model(torch.randn(30, 30), torch.randn(30, 30))
        self.check(model, inputs=2, outputs=1, steps=1, returned=1)
        self.check_latencies(model)
        whole = model.getLatency()
        parts = [
            model.getHostIpuLatency(), model.getComputeLatency(), model.getIpuHostLatency()
        ]  # fmt: skip
        self.assertAlmostEqual(whole[0], sum(part[0] for part in parts), places=12)
        before = model.getPerfCounters()
        before["input"][0].append(1.0)  # the caller's own
        model(torch.randn(30, 30), torch.randn(30, 30))
        self.check(model, inputs=2, outputs=1, steps=1, returned=1)

    def test_more_work_takes_longer(self):
        spans = []
        for size in (32, 256):
            model = poptorch.inferenceModel(Product(), _options())
            model(torch.randn(size, size), torch.randn(size, size))
            spans.append(model.getHostIpuLatency()[0])
        self.assertLess(spans[0], spans[1])

    def test_inference(self):
        for mode, period in (
            (OutputMode.Final, None),
            (OutputMode.All, None),
            (OutputMode.Sum, None),
            (OutputMode.EveryN, 2),
        ):
            for replicas in (1, 2):
                with self.subTest(mode=mode, replicas=replicas):
                    options = _options().outputMode(mode, period).deviceIterations(4)
                    model = poptorch.inferenceModel(Product(), options.replicationFactor(replicas))
                    model(torch.randn(16, 8, 8), torch.randn(16, 8, 8))
                    returned = {OutputMode.All: 4, OutputMode.EveryN: 2}.get(mode, 1)
                    self.check(model, 2, 1, 4 * replicas, returned * replicas)
                    self.check_latencies(model)

    def test_training(self):
        for mode, period, returned in (
            (OutputMode.Final, None, 1),
            (OutputMode.All, None, 8),
            (OutputMode.Sum, None, 1),
            (OutputMode.EveryN, 2, 4),
        ):
            with self.subTest(mode=mode):
                options = _options().outputMode(mode, period).deviceIterations(4)
                options.Training.gradientAccumulation(2)
                options.replicationFactor(2)
                model = poptorch.trainingModel(Linear(), options)
                model(torch.randn(16, 20), torch.randn(16, 20))
                self.check(model, 2, 2, 16, returned * 2)
                self.check_latencies(model)

    def test_synthetic_data_is_not_moved(self):
        options = _options().deviceIterations(4).enableSyntheticData(True)
        model = poptorch.inferenceModel(Product(), options)
        model(torch.randn(4, 8, 8), torch.randn(4, 8, 8))
        self.check_sizes_of_nothing(model)
        self.assertEqual(model.getLatency(), (0.0, 0.0, 0.0))

    def check_sizes_of_nothing(self, model) -> None:
        counters = model.getPerfCounters()
        self.assertEqual(counters["input"], [[], []])
        self.assertEqual(counters["output_complete"], [[]])

    def test_cycles(self):
        model = poptorch.inferenceModel(Product(), _options())
        with self.assertRaisesRegex(poptorch.Error, "Cycle count logging is disabled"):
            model.cycleCount()
        model = poptorch.inferenceModel(Product(), _options().logCycleCount(True))
        with self.assertRaisesRegex(poptorch.Error, "run the model at least once"):
            model.cycleCount()
        model(torch.randn(8, 8), torch.randn(8, 8))
        with self.assertRaisesRegex(poptorch.Error, "only supported on actual IPU hardware"):
            model.cycleCount()


if __name__ == "__main__":
    unittest.main()
