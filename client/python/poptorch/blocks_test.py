"""Blocks and execution strategies: which block an operator belongs to, and where it runs."""

import copy
import io
import pickle
import unittest

import torch

import poptorch
from poptorch import _block_state


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = torch.nn.Linear(3, 4)
        self.l2 = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 2))

    def forward(self, x):
        return self.l2(self.l1(x))


def increment(x):
    return x + 1


def visited(function, strategy=None):
    """(id, stage, IPU, phase) of the blocks that a function enters."""
    with _block_state.capturing(strategy or poptorch.PipelinedExecution()) as state:
        function()
    return [(block.id, *block.placement) for block in state.blocks]


def enter(*blocks):
    """A function that enters blocks, given by (user_id, ipu_id)."""

    def run():
        for user_id, ipu_id in blocks:
            with poptorch.Block(user_id, ipu_id):
                pass

    return run


class BlocksTest(unittest.TestCase):
    def test_blocks_do_nothing_outside_of_captures(self):
        with poptorch.Block("A", ipu_id=1):
            poptorch.Block.useAutoId()
            poptorch.Block.start(ipu_id=1)
        self.assertIsNone(_block_state.active())
        model = Model()
        x = torch.ones(1, 3)
        before = model(x)
        poptorch.BeginBlock(model.l2, ipu_id=1)
        self.assertTrue(torch.equal(model(x), before))

    def test_block_of_an_operator(self):
        with _block_state.capturing(poptorch.PipelinedExecution()) as state:
            self.assertEqual(state.block_of_operator(), _block_state.NO_BLOCK)
            with poptorch.Block("A", ipu_id=0):
                self.assertEqual(state.block_of_operator(), 0)
            with self.assertRaisesRegex(poptorch.Error, "No active Block, all the ops must belong"):
                state.block_of_operator()
            poptorch.Block.start("B", ipu_id=1)
            self.assertEqual(state.block_of_operator(), 1)
            self.assertEqual(_block_state.current(), (1, 1, -1))
        placements = [tuple(block.placement) for block in state.blocks]
        self.assertEqual(placements, [(0, 0, -1), (1, 1, -1)])
        self.assertIsNone(_block_state.current())

    def test_block_inside_a_block_replaces_it(self):
        with _block_state.capturing(poptorch.ShardedExecution()) as state:
            with poptorch.Block(ipu_id=1):
                with poptorch.Block(ipu_id=0):
                    self.assertEqual(state.block_of_operator(), 1)
                with self.assertRaisesRegex(poptorch.Error, "No active Block"):
                    state.block_of_operator()

    def test_modules_begin_blocks(self):
        model = Model()
        self.assertIs(poptorch.BeginBlock(model.l2, ipu_id=1), model.l2)
        self.assertEqual(visited(lambda: model(torch.ones(1, 3))), [("0", 1, 1, -1)])
        with self.assertRaisesRegex(
            poptorch.Error, "'poptorch_py_error': module has already been assigned to a block."
        ):
            poptorch.BeginBlock(model.l2, ipu_id=1)
        poptorch.removeBlocks(model)
        self.assertEqual(visited(lambda: model(torch.ones(1, 3))), [])
        poptorch.BeginBlock(model.l2, "again", ipu_id=1)

    def test_hooks_of_the_module_that_were_first_belong_to_the_block_before(self):
        model, seen = Model(), []
        model.l2.register_forward_pre_hook(lambda *_: seen.append(state.block_of_operator()))
        poptorch.BeginBlock(model.l2, ipu_id=1)
        with _block_state.capturing(poptorch.PipelinedExecution()) as state:
            model(torch.ones(1, 3))
        self.assertEqual(seen, [_block_state.NO_BLOCK])

    def test_functions_are_blocks(self):
        class Net(torch.nn.Module):
            @poptorch.BlockFunction(ipu_id=0)
            def first(self, x):
                "Adds."
                return x + 1

            @poptorch.BlockFunction("B", ipu_id=1)
            def second(self, x):
                return x * 2

            def forward(self, x):
                poptorch.Block.useAutoId()
                return self.second(self.first(x))

        self.assertEqual(Net.first.__doc__, "Adds.")
        blocks = visited(lambda: self.assertEqual(Net()(torch.ones(1)).item(), 4))
        self.assertEqual(blocks, [("0", 0, 0, -1), ("B", 1, 1, -1)])

    def test_wrapped_function(self):
        block = poptorch.BeginBlock(increment, 1, 2)
        self.assertEqual((block._user_id, block._ipu_id), (1, 2))
        self.assertEqual(visited(lambda: block(1)), [("1", 2, 2, -1)])
        self.assertEqual(pickle.loads(pickle.dumps(block))(1), 2)
        message = "module is not an instance of torch.nn.Module or  function."
        for wrong in (3, torch.nn.Linear):
            with self.assertRaisesRegex(poptorch.Error, message):
                poptorch.BeginBlock(wrong)

    def test_blocks_are_copied_and_saved(self):
        model = Model()
        poptorch.BeginBlock(model.l2, user_id=1, ipu_id=2)
        names = list(model.state_dict())
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for each in (copy.copy(model), copy.deepcopy(model), torch.load(file)):
            self.assertIn("BeginBlock(user_id=1, ipu_id=2)", poptorch.module_repr(each))
            self.assertEqual(list(each.state_dict()), names)
        poptorch.removeBlocks(copy.deepcopy(model))
        self.assertIn("(user_id=1, ipu_id=2)", poptorch.module_repr(model.l2))

    def test_representation_is_that_of_torch(self):
        model = Model()
        self.assertEqual(poptorch.module_repr(model), repr(model))
        poptorch.BeginBlock(model.l1, ipu_id=1)
        self.assertRegex(
            poptorch.module_repr(model), r"\(l1\):\s*BeginBlock\(user_id=None, ipu_id=1\) Linear"
        )

    def test_print_shows_blocks(self):
        model = Model()
        poptorch.BeginBlock(model.l1, "A", 1)
        file = io.StringIO()
        poptorch.print(model, 3, file=file)
        poptorch.print("text", file=file)
        self.assertEqual(file.getvalue(), f"{poptorch.module_repr(model)} 3\ntext\n")

    def test_state_ends_with_an_exception(self):
        with self.assertRaises(KeyboardInterrupt):
            with _block_state.capturing(poptorch.PipelinedExecution()):
                raise KeyboardInterrupt
        self.assertIsNone(_block_state.active())


class StrategiesTest(unittest.TestCase):
    def test_stage_same_as_ipu(self):
        blocks = visited(enter((None, 0), (None, 1), (None, 1)))
        self.assertEqual(blocks, [("0", 0, 0, -1), ("1", 1, 1, -1), ("2", 1, 1, -1)])
        self.assertEqual(
            visited(enter(("A", 1), ("A", None))), [("A", 1, 1, -1), ("A", 1, 1, -1)]
        )
        with self.assertRaisesRegex(
            AssertionError,
            "poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for block A",
        ):
            visited(enter(("A", None)))

    def test_stages_that_count(self):
        strategy = poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
        run = enter((None, 0), (None, 1), ("A", 2), (None, 1))
        expected = [("0", 1, 0, -1), ("1", 2, 1, -1), ("A", 3, 2, -1), ("2", 4, 1, -1)]
        self.assertEqual(visited(run, strategy), expected)
        self.assertEqual(visited(run, strategy), expected)

    def test_pipelines_do_not_descend(self):
        with self.assertRaisesRegex(
            poptorch.Error, "Block '1' has stage 0, but the block before it, '0', has 1"
        ):
            visited(enter((None, 1), (None, 0)))
        visited(enter((None, 1), (None, 0)), poptorch.ShardedExecution())

    def test_listed_stages(self):
        strategy = poptorch.PipelinedExecution(
            "A", ["B", "C"], poptorch.Stage("D").ipu(0), poptorch.Stage("E")
        )
        strategy.stage("B").ipu(3)
        blocks = visited(enter(("A", None), ("B", 1), ("C", 1), ("D", None), ("E", 2)), strategy)
        self.assertEqual([block[1:3] for block in blocks], [(0, 0), (1, 3), (1, 3), (2, 0), (3, 2)])

    def test_wrong_stages(self):
        strategy = poptorch.ShardedExecution("A", "B")
        with self.assertRaisesRegex(
            AssertionError, r"Unknown Block 'C' list of expected Blocks: \['A', 'B'\]"
        ):
            visited(enter(("A", 0), ("C", 1)), strategy)
        with self.assertRaisesRegex(AssertionError, "B associated with more than one stage"):
            poptorch.PipelinedExecution("A", "B", ["C", "B"])
        for wrong in (3, [3], [], poptorch.Phase("A")):
            with self.assertRaisesRegex(AssertionError, "stages of PipelinedExecution must be"):
                poptorch.PipelinedExecution(wrong)
        with self.assertRaisesRegex(AssertionError, "Ids of blocks must be strings"):
            poptorch.Stage(1)
        with self.assertRaisesRegex(AssertionError, "IPU of a stage is -1, must be an integer"):
            poptorch.Stage("A").ipu(-1)

    def test_phases(self):
        for phases in (
            (poptorch.Phase("A", "B"), poptorch.Phase("C")),
            (poptorch.Stage("A", "B"), poptorch.Stage("C")),
            ([poptorch.Stage("A", "B")], [poptorch.Stage("C")]),
            (["A", "B"], "C"),
        ):
            strategy = poptorch.SerialPhasedExecution(*phases)
            strategy.phase(1).ipus(2)
            blocks = visited(enter(("A", 0), ("B", 1), ("C", 1)), strategy)
            self.assertEqual([b[1:] for b in blocks], [(0, 0, 0), (0, 1, 0), (0, 2, 1)])
        with self.assertRaisesRegex(poptorch.Error, "has phase 0, but the block before it, 'C'"):
            visited(enter(("C", 0), ("A", 0)), strategy)

    def test_phases_on_ipus(self):
        strategy = poptorch.ParallelPhasedExecution(
            [poptorch.Stage("0"), poptorch.Stage("1")],
            [poptorch.Stage("2", "4"), poptorch.Stage("3", "5")],
        )
        strategy.phase(0).ipus(0, 2)
        strategy.phase(1).ipus(1, 3)
        blocks = visited(enter(*[(None, None)] * 6), strategy)
        self.assertEqual([b[2:] for b in blocks], [(0, 0), (2, 0), (1, 1), (3, 1), (1, 1), (3, 1)])
        with self.assertRaisesRegex(
            AssertionError, "Phase contains 2 stages but you provided 1 ipus"
        ):
            strategy.phase(0).ipus(0)
        with self.assertRaisesRegex(AssertionError, "The phase is 2, must be an integer between"):
            strategy.phase(2)

    def test_wrong_phases(self):
        for strategy in (poptorch.SerialPhasedExecution, poptorch.ParallelPhasedExecution):
            with self.assertRaisesRegex(
                AssertionError, "no AutoStage for PhasedExecution, please explicitly specify"
            ):
                strategy()
            with self.assertRaisesRegex(AssertionError, "A associated with more than one stage"):
                strategy("A", ["A"])
        with self.assertRaisesRegex(AssertionError, "All arguments of a Phase must be ids"):
            poptorch.Phase("A", poptorch.Stage("B"))

    def test_backend_options(self):
        parallel = poptorch.ParallelPhasedExecution("A").sendTensorsOffChipAfterFwd()
        self.assertEqual(
            parallel.useSeparateBackwardPhase().backendOptions(),
            {
                "execution_mode": 2,
                "serial_phases_execution": False,
                "separate_backward_phase": True,
                "tensors_liveness": 1,
            },
        )
        serial = poptorch.SerialPhasedExecution("A")
        serial.setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase)
        self.assertEqual(serial.backendOptions()["tensors_liveness"], 3)
        self.assertEqual(poptorch.ShardedExecution().backendOptions(), {"execution_mode": 1})

    def test_strategies_show_their_stages(self):
        strategy = poptorch.PipelinedExecution(poptorch.Stage("A").ipu(1), ["B", "C"])
        self.assertEqual(repr(strategy), "PipelinedExecution(Stage('A', ipu=1), Stage('B', 'C'))")
        self.assertEqual(
            repr(poptorch.ShardedExecution()), "ShardedExecution(AutoStage.SameAsIpu)"
        )


if __name__ == "__main__":
    unittest.main()
