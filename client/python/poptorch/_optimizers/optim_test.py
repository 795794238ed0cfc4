"""Optimisers: constructors, variable attributes, state dictionaries and what the device is told."""

import copy
import math
import pickle
import unittest
import warnings

import torch
from torch.optim.lr_scheduler import ExponentialLR

import poptorch
from poptorch._optimizers import attributes as _optimizer_attributes, export

_PAIRS = (
    (poptorch.optim.SGD, torch.optim.SGD),
    (poptorch.optim.Adam, torch.optim.Adam),
    (poptorch.optim.AdamW, torch.optim.AdamW),
    (poptorch.optim.RMSprop, torch.optim.RMSprop),
)
_ALL = [pair[0] for pair in _PAIRS] + [poptorch.optim.LAMB]


def parameters():
    return torch.nn.Linear(2, 3).parameters()


def groups(**second):
    first = {"params": [torch.nn.Parameter(torch.ones(1))]}
    return [first, {"params": [torch.nn.Parameter(torch.ones(2))], **second}]


def read(optimizer):
    return _optimizer_attributes.OptimizerReader(poptorch.Options()).read(optimizer)


class ConstructorsTest(unittest.TestCase):
    def test_defaults_are_those_of_torch(self):
        for ours, theirs in _PAIRS:
            optimizer = ours(parameters(), lr=0.5)
            self.assertIsInstance(optimizer, theirs)
            self.assertIs(ours.__bases__[1], theirs)
            self.assertEqual(optimizer.defaults, theirs(parameters(), lr=0.5).defaults)
        expected = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2}
        self.assertEqual(
            poptorch.optim.LAMB(parameters()).defaults, {**expected, "max_weight_norm": 65500.0}
        )

    def test_arguments_reach_groups(self):
        optimizer = poptorch.optim.SGD(groups(lr=0.5), 0.1, 0.9, weight_decay=1e-4, nesterov=True)
        self.assertEqual([group["lr"] for group in optimizer.param_groups], [0.1, 0.5])
        self.assertEqual(optimizer.param_groups[1]["momentum"], 0.9)
        combined = poptorch.optim.SGD(
            groups(velocity_scaling=4.0), lr=0.1, use_combined_accum=True, velocity_scaling=2.0
        )
        self.assertEqual([g["velocity_scaling"] for g in combined.param_groups], [2.0, 4.0])

    def test_wrong_arguments(self):
        for optimizer in _ALL:
            with self.assertRaisesRegex(
                AssertionError, "Accumulation types must be either torch.float32 or torch.float16"
            ):
                optimizer(parameters(), lr=0.1, accum_type=torch.float64)
        with self.assertRaisesRegex(ValueError, "Maximum norm of gradients cannot be NaN"):
            poptorch.optim.Adam(parameters(), max_grad_norm=math.nan)
        with self.assertRaises(TypeError):
            poptorch.optim.RMSprop(parameters(), max_grad_norm=1.0)
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            poptorch.optim.SGD(parameters(), lr=0.1, velocity_scaling=2.0)
        self.assertIn("velocity_scaling value ignored when using the separate", logs.output[0])


class VariableAttributesTest(unittest.TestCase):
    def test_what_is_given_is_variable(self):
        optimizer = poptorch.optim.SGD(parameters(), lr=0.1, momentum=0.0, loss_scaling=2.0)
        attributes = optimizer.variable_attrs
        for name in ("lr", "momentum", "loss_scaling"):
            self.assertFalse(attributes.isConstant(name))
        for name in ("dampening", "weight_decay", "nesterov", "velocity_scaling"):
            self.assertTrue(attributes.isConstant(name))
        attributes.markAsVariable("dampening")
        attributes.markAsConstant("momentum")
        constants = [name for name, each in read(optimizer).groups[0].items() if each.constant]
        self.assertEqual(constants, ["momentum", "weight_decay", "nesterov"])
        with self.assertRaisesRegex(AssertionError, "Unknown attribute beta, allowed values:"):
            attributes.markAsConstant("beta")

    def test_learning_rate_is_always_variable(self):
        for optimizer in _ALL[1:]:
            self.assertFalse(optimizer(parameters()).variable_attrs.isConstant("lr"))

    def test_defaults_of_torch_optimizers_are_constant(self):
        optimizer = torch.optim.SGD(parameters(), lr=0.01, momentum=1.0, dampening=0.0)
        constants = [name for name, each in read(optimizer).groups[0].items() if each.constant]
        self.assertEqual(
            constants, ["velocity_scaling", "dampening", "weight_decay", "nesterov"]
        )
        optimizer = torch.optim.Adam(parameters(), betas=(0.5, 0.5))
        self.assertTrue(read(optimizer).groups[0]["betas"].constant)

    def test_automatic_loss_scaling_makes_the_scale_variable(self):
        options = poptorch.Options()
        options.Training.setAutomaticLossScaling(True)
        reader = _optimizer_attributes.OptimizerReader(options)
        values = reader.read(poptorch.optim.Adam(parameters()))
        self.assertEqual(values.loss_scaling, (1.0, False))


class StateTest(unittest.TestCase):
    def test_state_dict(self):
        for kind in _ALL:
            optimizer = kind(parameters(), lr=0.1)
            state = optimizer.state_dict()
            self.assertEqual((state["ipu_state"], state["ipu_param"]), (None, None))
            self.assertIn("param_groups", state)
            self.assertFalse(optimizer.has_state())

    def test_state_is_read_when_it_is_stale(self):
        optimizer = poptorch.optim.Adam(parameters())
        reads = []

        def read_from_device():
            reads.append(1)
            optimizer.take_device_state({"Accl1___w": torch.ones(1)}, {"lr": torch.tensor(1.0)})

        optimizer.connect(read_from_device)
        optimizer.host_state_is_dirty = True
        self.assertIn("Accl1___w", optimizer.state_dict()["ipu_state"])
        with self.assertLogs("poptorch::python", "DEBUG") as logs:
            optimizer.state_dict()
        self.assertIn("Using cached optimiser state dict", logs.output[0])
        self.assertEqual(len(reads), 1)

    def test_loaded_state_is_read_back_exactly(self):
        optimizer = poptorch.optim.Adam(parameters(), lr=0.1)
        optimizer.take_device_state({"Accl1___w": torch.ones(1)}, {"lr": torch.tensor(1.0)})
        state = copy.deepcopy(optimizer.state_dict())
        state["ipu_state"]["Accl1___w"] += 1
        state["param_groups"][0]["lr"] = 0.25
        optimizer.load_state_dict(state)
        self.assertEqual(optimizer.state_dict()["ipu_state"]["Accl1___w"].item(), 2)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.25)
        self.assertTrue(optimizer.ipu_state_is_dirty)
        self.assertFalse(optimizer.host_state_is_dirty)

    def test_foreign_state(self):
        optimizer = poptorch.optim.Adam(parameters())
        with self.assertRaisesRegex(RuntimeError, "Cannot load optimizer state dictionary because"):
            optimizer.load_state_dict({})
        with self.assertRaisesRegex(RuntimeError, "Only IPU optimizer states can be loaded onto"):
            optimizer.load_state_dict(torch.optim.Adam(parameters(), lr=3.0).state_dict())
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.001)

    def test_copies_keep_attributes(self):
        optimizer = poptorch.optim.SGD(parameters(), lr=0.1, loss_scaling=0.5, max_grad_norm=2.0)
        ExponentialLR(optimizer, gamma=0.9)
        duplicates = (copy.copy(optimizer), copy.deepcopy(optimizer))
        for each in (*duplicates, pickle.loads(pickle.dumps(optimizer))):
            self.assertEqual(read(each), read(optimizer))
            self.assertEqual(each.step.__self__, each)

    def test_schedulers_change_the_rate(self):
        for kind in _ALL:
            optimizer = kind(parameters(), lr=1.0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # No step runs in Python.
                scheduler = ExponentialLR(optimizer, gamma=0.5)
                scheduler.step()
            self.assertEqual(read(optimizer).groups[0]["lr"].value, 0.5)


class ReadingTest(unittest.TestCase):
    def test_unsupported_optimizers(self):
        for wrong in (torch.optim.Adagrad(parameters()), "SGD"):
            with self.assertRaisesRegex(AssertionError, "Unsupported optimizer type. Types suppor"):
                read(wrong)
        for kind in (torch.optim.Adam, poptorch.optim.AdamW):
            with self.assertRaisesRegex(ValueError, "Only non-amsgrad Adam/AdamW optimizers"):
                read(kind(parameters(), amsgrad=True))
        with self.assertRaisesRegex(ValueError, "maximize is not supported by RMSprop"):
            read(torch.optim.RMSprop(parameters(), maximize=True))

    def test_wrong_attributes(self):
        optimizer = poptorch.optim.Adam(groups())
        for name, value, message in (
            ("lr", "0.1", "Expected a number for lr but got 0.1 instead"),
            ("eps", None, "Mandatory attribute eps not found in optimizer group"),
            ("betas", 0.9, "'betas' group attribute must be a pair"),
            ("betas", (0.9,), r"Expected a pair for betas but got \(0.9,\) instead"),
            ("betas", (0.9, "x"), r"Expected a number for betas\[1\] but got x"),
        ):
            before = optimizer.param_groups[1][name]
            optimizer.param_groups[1][name] = value
            with self.assertRaisesRegex(AssertionError, message):
                read(optimizer)
            optimizer.param_groups[1][name] = before
        optimizer.use_tf_variant = True
        with self.assertRaisesRegex(ValueError, "use_tf_variant is only available with RMSProp"):
            read(optimizer)
        optimizer.use_tf_variant = False
        optimizer.max_grad_norm = math.nan
        with self.assertRaisesRegex(ValueError, "max_grad_norm must not be NaN"):
            read(optimizer)
        with self.assertRaisesRegex(AssertionError, "must have the same value for the 'centered'"):
            read(torch.optim.RMSprop(groups(centered=True)))

    def test_subclasses_warn_once(self):
        class NoBias(poptorch.optim.AdamW):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, bias_correction=False, **kwargs)

        reader = _optimizer_attributes.OptimizerReader(poptorch.Options())
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            for _ in range(2):
                values = reader.read(NoBias(parameters()))
        self.assertEqual(len(logs.output), 1)
        self.assertIn("Optimizer `NoBias` subclassed from classes in poptorch", logs.output[0])
        self.assertIn("Poptorch does not run Python optimizer code directly;", logs.output[0])
        self.assertEqual(values.type_name, "ADAMW_NO_BIAS")

    def test_half_accumulators_hold_running_means(self):
        for optimizer, expected in (
            (poptorch.optim.SGD(parameters(), lr=0.1, accum_type=torch.half), "Running"),
            (poptorch.optim.SGD(parameters(), lr=0.1), "Post"),
            (
                poptorch.optim.SGD(
                    parameters(), lr=0.1, accum_type=torch.half, use_combined_accum=True
                ),
                "Post",
            ),
        ):
            options = poptorch.Options()
            options._freeze()
            reader = _optimizer_attributes.OptimizerReader(options)
            reader.read(optimizer)
            strategy = options.Training.meanAccumulationAndReplicationReductionStrategy
            self.assertEqual(strategy.name, expected)
            with self.assertRaises(AttributeError):
                options.checkIsFrozen()
        reader.read(torch.optim.Adam(parameters()), is_compiled=True)
        with self.assertRaisesRegex(
            ValueError, "Strategy.Running but the executable is already compiled."
        ):
            half = poptorch.optim.Adam(parameters(), accum_type=torch.half)
            reader.read(half, is_compiled=True)

    def test_unexpected_attributes_are_reported_once(self):
        for relax, level in ((False, "WARNING"), (True, "DEBUG")):
            options = poptorch.Options().relaxOptimizerAttributesChecks(relax)
            reader = _optimizer_attributes.OptimizerReader(options)
            optimizer = poptorch.optim.SGD(groups(), lr=0.1)
            optimizer.early = optimizer.param_groups[0]["early"] = 1
            with self.assertLogs("poptorch::python", "DEBUG") as logs:
                reader.read(optimizer)
                optimizer.lr = 0.5
                optimizer.param_groups[0]["initial_lr"] = 0.1
                optimizer.param_groups[1]["velocity_scaling"] = 4.0
                for _ in range(2):
                    reader.read(optimizer)
            self.assertEqual([record.levelname for record in logs.records], [level] * 3)
            self.assertEqual(
                [record.getMessage() for record in logs.records],
                [
                    "Ignoring unexpected optimizer attribute in SGD optimizer: ['lr']",
                    "Ignoring unexpected group 0 attribute in SGD optimizer: ['initial_lr']",
                    "Ignoring unexpected group 1 attribute in SGD optimizer: ['velocity_scaling']",
                ],
            )


class ChangesTest(unittest.TestCase):
    def check(self, before, after):
        reader = _optimizer_attributes.OptimizerReader(poptorch.Options())
        _optimizer_attributes.check_changes(reader.read(before), reader.read(after, True))

    def test_variable_attributes_may_change(self):
        optimizer = poptorch.optim.SGD(groups(), lr=0.1, momentum=0.9, loss_scaling=2.0)
        changed = copy.deepcopy(optimizer)
        changed.loss_scaling = 4.0
        changed.param_groups[1].update(lr=0.5, momentum=0.1)
        self.check(optimizer, changed)

    def test_constants_may_not(self):
        before = poptorch.optim.SGD(groups(), lr=0.1)
        with self.assertRaisesRegex(
            poptorch.Error, "attribute 'momentum' of group 1 is constant and cannot change from 0"
        ):
            self.check(before, poptorch.optim.SGD(groups(momentum=0.5), lr=0.1))
        with self.assertRaisesRegex(poptorch.Error, "'loss_scaling' of the optimizer is constant"):
            self.check(before, poptorch.optim.SGD(groups(), lr=0.1, loss_scaling=2.0))

    def test_fixed_attributes_may_not(self):
        before = poptorch.optim.SGD(parameters(), lr=0.1)
        for after, message in (
            (poptorch.optim.Adam(parameters()), "type of the optimizer cannot change from SGD2"),
            (poptorch.optim.SGD(groups(), lr=0.1), "number of groups of the optimizer cannot"),
            (poptorch.optim.SGD(parameters(), lr=0.1, max_grad_norm=1.0), "max_grad_norm of the"),
        ):
            with self.assertRaisesRegex(poptorch.Error, message):
                self.check(before, after)


class ExportTest(unittest.TestCase):
    def test_core_dictionary(self):
        optimizer = poptorch.optim.SGD(
            groups(lr=0.5), lr=0.1, momentum=0.9, loss_scaling=2.0, max_grad_norm=3.0
        )
        core = export.core_dict(read(optimizer), [["a"], ["b", "c"]])
        self.assertEqual((core["kind"], core["loss_scale"]), ("sgd", 2.0))
        self.assertEqual((core["max_grad_norm"], core["accum_type"]), (3.0, "float"))
        self.assertEqual(
            core["groups"][1],
            {
                "parameters": ["b", "c"],
                "lr": 0.5,
                "momentum": 0.9,
                "dampening": 0,
                "weight_decay": 0,
                "nesterov": False,
                "velocity_scaling": 2.0,
                "maximize": False,
                "centered": False,
                "constants": ["dampening", "weight_decay", "nesterov"],
            },
        )

    def test_momentum_that_can_be_raised_keeps_velocities(self):
        def momentum(optimizer, **compiled):
            return export.core_dict(read(optimizer), [["w"]], **compiled)["groups"][0]["momentum"]

        sgd, rmsprop = poptorch.optim.SGD, poptorch.optim.RMSprop
        for make in (sgd, rmsprop):
            self.assertGreater(momentum(make(parameters(), lr=0.1, momentum=0.0)), 0)
            self.assertEqual(momentum(make(parameters(), lr=0.1)), 0)
        self.assertEqual(momentum(torch.optim.SGD(parameters(), lr=0.1, momentum=0.0)), 0)
        self.assertEqual(momentum(sgd(parameters(), lr=0.1, momentum=0.0), is_compiled=True), 0)
        self.assertGreater(momentum(rmsprop(parameters(), momentum=0.0), is_compiled=True), 0)

    def test_kinds(self):
        kinds = [read(kind(parameters(), lr=0.1)).kind.name for kind in _ALL]
        self.assertEqual(kinds, ["sgd", "adam", "adamw", "rmsprop", "lamb"])

    def test_parameters_of_the_state(self):
        optimizer = poptorch.optim.SGD(
            parameters(), lr=0.05, dampening=0.5, weight_decay=0.1, loss_scaling=0.25
        )
        scalars = export.ipu_parameters(read(optimizer), [["lin.w", "lin.b"]])
        self.assertEqual(len(scalars), 5)
        self.assertAlmostEqual(
            scalars["scaledLearningRate0___specific___lin.w"].item(), 0.05 * 0.5 / 0.25, places=6
        )
        self.assertAlmostEqual(
            scalars["weightDecayScaleFactor0___specific___lin.b"].item(), 0.9975, places=6
        )
        self.assertEqual(scalars["lossScaling_FLOAT"].item(), 0.25)
        scalars = export.ipu_parameters(read(torch.optim.Adam(parameters())), [["w"]])
        self.assertEqual(
            sorted(scalars),
            ["learningRate___specific___w", "lossScaling_FLOAT", "weightDecay___specific___w"],
        )

    def lines(self, before, after):
        poptorch.setLogLevel("DEBUG")
        self.addCleanup(poptorch.setLogLevel, "WARN")
        with self.assertLogs("poptorch:cpp", "DEBUG") as logs:
            poptorch._logging.native.debug("begin")
            export.log_update(before, after, [["w"]] * len(after.groups))
        return [record.getMessage() for record in logs.records[1:]]

    def test_log_lines(self):
        values = read(poptorch.optim.SGD(groups(), lr=0.01, loss_scaling=2.0))
        lines = self.lines(None, values)
        self.assertEqual(len(lines), 3)
        for part in (
            "Updating graph optimizer with SGD2, ",
            " defaultLearningRate=0.01,",
            " defaultVelocityScaling=2,",
            " defaultMomentum=0 (const),",
            " lossScaling=2,",
            " accumType=float32,",
            " useTfVariant=0, maxGradNorm=inf",
        ):
            self.assertIn(part, lines[0])
        for part in ("group 1 optimizer with SGD2", "learningRate=0.01,", "velocityScaling=2,"):
            self.assertIn(part, lines[2])
        self.assertRegex(lines[2], r"momentum=0 \(const\), .* for \(tensors affected w\)")

    def test_equal_optimizers_print_nothing(self):
        for ours, theirs in _PAIRS:
            lines = self.lines(read(theirs(parameters(), lr=1.0)), read(ours(parameters(), lr=1.0)))
            self.assertEqual(lines, [])


if __name__ == "__main__":
    unittest.main()
