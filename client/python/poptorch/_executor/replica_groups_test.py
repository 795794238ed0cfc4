"""Parameters with a value for each group of replicas, against models of each group alone."""

import copy
import os
import tempfile
import unittest

import torch
from torch import nn

os.environ["POPTORCH_IPU_MODEL"] = "1"

import poptorch  # pylint: disable=wrong-import-position
from poptorch import CommGroupType, VariableRetrievalMode  # pylint: disable=wrong-import-position

_ONE = VariableRetrievalMode.OnePerGroup
_TOLERANCES = {"rtol": 1e-4, "atol": 1e-5}


class Model(nn.Module):
    """A product with a parameter, which has rows for groups, and a layer that all share."""

    def __init__(self, *groups: int) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Parameter(torch.randn(*groups, 5, 4))
        self.fc = nn.Linear(4, 2)

    def forward(self, x, wanted=None):
        assert self.table.dim() == 2
        y = self.fc(torch.tanh(x @ self.table))
        return y if wanted is None else poptorch.identity_loss((y - wanted) ** 2, "mean")


def _options(replicas: int) -> poptorch.Options:
    options = poptorch.Options().showCompilationProgressBar(False).replicationFactor(replicas)
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    return options


class ReplicaGroupsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)
        self.x, self.wanted = torch.randn(2, 8, 5), torch.randn(2, 8, 2)  # of two calls

    def eager(self, model: Model, groups, optimizer):
        """A model of each group, after two updates; the shared layer gets all gradients."""
        parts = [Model() for _ in groups]
        for part, row in zip(parts, model.table.detach()):
            part.table.data.copy_(row)
            part.fc = model.fc
        optimizers = [optimizer([part.table]) for part in parts]
        shared = optimizer(model.fc.parameters())
        for x, wanted in zip(self.x, self.wanted):
            rows = list(zip(x.split(2), wanted.split(2)))
            for each in (*optimizers, shared):
                each.zero_grad()
            for part, replicas in zip(parts, groups):
                for replica in replicas:
                    part(*rows[replica]).backward()
            for each in (*optimizers, shared):
                each.step()
        return torch.stack([part.table.detach() for part in parts]), model.fc

    def test_training(self):
        for kind, shards, groups in (
            (CommGroupType.NoGrouping, 0, [[0], [1], [2], [3]]),
            (CommGroupType.Consecutive, 2, [[0, 1], [2, 3]]),
            (CommGroupType.Orthogonal, 2, [[0, 2], [1, 3]]),
        ):
            for make in (
                lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
                lambda p: poptorch.optim.Adam(p, lr=0.01),
            ):
                with self.subTest(kind):
                    model = Model(len(groups))
                    expected, shared = self.eager(copy.deepcopy(model), groups, make)
                    optimizer = make(model.parameters())
                    training = poptorch.trainingModel(model, _options(4), optimizer)
                    model.table.replicaGrouping(kind, shards, _ONE)
                    for x, wanted in zip(self.x, self.wanted):
                        training(x, wanted)
                    torch.testing.assert_close(model.table.detach(), expected, **_TOLERANCES)
                    torch.testing.assert_close(
                        model.fc.weight.detach(), shared.weight.detach(), **_TOLERANCES
                    )
                    state = optimizer.state_dict()["ipu_state"]
                    shapes = {tuple(v.shape) for n, v in state.items() if n.endswith("table")}
                    self.assertEqual(shapes, {(len(groups), 5, 4)})
                    training.destroy()

    def test_inference(self):
        model = Model(4)
        rows = [self.x[0][2 * i : 2 * i + 2] for i in range(4)]
        expected = []
        for i in range(4):
            alone = Model()
            alone.load_state_dict({**model.state_dict(), "table": model.table[i]})
            expected.append(alone(rows[i]).detach())
        inference = poptorch.inferenceModel(model, _options(4))
        model.table.replicaGrouping(
            CommGroupType.NoGrouping, 1, VariableRetrievalMode.AllReplicas
        )
        result = inference(self.x[0])
        torch.testing.assert_close(result, torch.cat(expected), **_TOLERANCES)
        inference.detachFromDevice()
        self.assertTrue(torch.equal(inference(self.x[0]), result))

    def test_validation_and_anchors_and_files(self):
        model = Model(2)
        options = _options(2).outputMode(poptorch.OutputMode.Final)
        options.anchorTensor("table", "UpdatedVar___table")
        training = poptorch.trainingModel(
            model, options, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        )
        training.table.replicaGrouping(CommGroupType.Consecutive, 1, _ONE)
        batch = self.x[0][:4], self.wanted[0][:4]
        training(*batch)
        anchored = training.getAnchoredTensor("table")
        torch.testing.assert_close(anchored[:2], model.table.detach())
        validation = poptorch.inferenceModel(training, _options(2))
        result = validation(batch[0])
        with tempfile.NamedTemporaryFile() as file:
            training.save(file.name)
            loaded = poptorch.load(file.name)
        self.assertTrue(torch.equal(loaded(*batch), training(*batch)))
        again = poptorch.inferenceModel(loaded, _options(2))
        self.assertFalse(torch.equal(again(batch[0]), result))
        torch.testing.assert_close(again(batch[0]), validation(batch[0]))
        training.destroy()
        loaded.destroy()

    def test_files_of_other_groups(self):
        def training(kind):
            model = Model(2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            made = poptorch.trainingModel(model, _options(4), optimizer)
            model.table.replicaGrouping(kind, 2, _ONE)
            return made

        saved = training(CommGroupType.Consecutive)
        saved(self.x[0], self.wanted[0])
        with tempfile.NamedTemporaryFile() as file:
            saved.save(file.name)
            training(CommGroupType.Consecutive).loadExecutable(file.name)
            with self.assertRaisesRegex(poptorch.Error, "its parameters have other groups"):
                training(CommGroupType.Orthogonal).loadExecutable(file.name)

    def test_one_group_is_as_none(self):
        model = Model()
        training = poptorch.trainingModel(model, _options(2))
        model.table.replicaGrouping(CommGroupType.All, 0, _ONE)
        model.fc.weight.replicaGrouping(CommGroupType.Consecutive, 2, _ONE)
        training(self.x[0], self.wanted[0])
        self.assertEqual(model.table.shape, (5, 4))
        training.destroy()

    # --- What is refused.

    def refuse(self, text: str, *grouping, groups=(4,), replicas=4, optimizer=None, name="table"):
        model = Model(*groups)
        if name == "scalar":
            model.scalar = nn.Parameter(torch.tensor(1.0))
        optimizer = optimizer and optimizer(model.parameters())
        training = poptorch.trainingModel(model, _options(replicas), optimizer)
        self.addCleanup(training.destroy)
        getattr(model, name).replicaGrouping(*grouping)
        with self.assertRaisesRegex(poptorch.Error, text):
            training(self.x[0], self.wanted[0])

    def test_groups_that_do_not_fit(self):
        consecutive, none = CommGroupType.Consecutive, CommGroupType.NoGrouping
        self.refuse("'table' is for groups of 3 replicas, must be for a factor of the 4 replicas",
                    consecutive, 3, _ONE)  # fmt: skip
        self.refuse("'table' has 4 rows, must have 2: one for each group", consecutive, 2, _ONE)
        self.refuse("has 2 rows, and VariableRetrievalMode.AllReplicas would return .* choose One",
                    consecutive, 2, VariableRetrievalMode.AllReplicas, groups=(2,))  # fmt: skip
        self.refuse("Scalars cannot be passed as per-replica weight tensor values: 'scalar'",
                    none, 0, _ONE, groups=(), name="scalar")  # fmt: skip

    def test_norms_of_optimizers(self):
        none = CommGroupType.NoGrouping
        for kind, arguments, text in (
            (poptorch.optim.LAMB, {}, "'table' has a value for each group .* of which LAMB would"),
            (poptorch.optim.SGD, {"lr": 0.1, "max_grad_norm": 1.0}, "max_grad_norm would take one"),
        ):
            make = lambda p, kind=kind, arguments=arguments: kind(p, **arguments)
            self.refuse(text, none, 0, _ONE, optimizer=make)

    def test_arguments(self):
        model = Model(2)
        training = poptorch.trainingModel(model, _options(2))
        for wrong in (
            ("NoGrouping", 0, _ONE),
            (CommGroupType.NoGrouping, 0.5, _ONE),
            (CommGroupType.Consecutive, 0, _ONE),
            (CommGroupType.NoGrouping, 0, True),
        ):
            with self.assertRaises((AssertionError, ValueError)):
                model.table.replicaGrouping(*wrong)
        model.table.replicaGrouping(CommGroupType.NoGrouping, 0, _ONE)
        training.compile(self.x[0], self.wanted[0])
        with self.assertRaisesRegex(poptorch.Error, "must be called before the model is compiled"):
            model.table.replicaGrouping(CommGroupType.NoGrouping, 0, _ONE)
        training.destroy()


if __name__ == "__main__":
    unittest.main()
