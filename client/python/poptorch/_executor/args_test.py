"""Arguments of models: binding, flattening, and comparison with those of the first call."""

import collections
import unittest

import numpy as np
import torch

import poptorch
from poptorch._executor import args as _args
from poptorch import _custom_parsers

Point = collections.namedtuple("Point", "x y")


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second


class PairParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.first
        if struct.second is not None:
            yield struct.second

    def reconstruct(self, original_structure, tensor_iterator):
        return Pair(*tensor_iterator)


def one(*shape):
    return torch.ones(shape or (1,))


class Call:
    """The first call of a function, and later ones."""

    def __init__(self, function, *args, **kwargs):
        self._parser = _args.ArgParser(function)
        self.first = self._parser.bind(args, kwargs)
        self._description = _args.Description(self.first)

    def __call__(self, *args, **kwargs):
        return self._description.tensors(self._parser.bind(args, kwargs))


class BindingTest(unittest.TestCase):
    def test_arguments_are_in_the_order_of_the_signature(self):
        default = one()

        def forward(a, b, c=default, d=None):
            pass

        parser = _args.ArgParser(forward)
        for args, kwargs in (((1, 2), {}), ((1,), {"b": 2}), ((), {"b": 2, "a": 1})):
            bound = parser.bind(args, kwargs)
            self.assertEqual(bound, ((1, 2, default, None), ("a", "b", "c", "d"), {}))

    def test_variadic_arguments(self):
        def forward(a, b, *c, y=None, u=3, **w):
            pass

        bound = _args.ArgParser(forward).bind((1, 2, 3, 4), {"m": 5, "u": 6})
        self.assertEqual(bound.args, (1, 2, 3, 4))
        self.assertEqual(bound.names, ("a", "b", "c[0]", "c[1]"))
        self.assertEqual(bound.kwargs, {"y": None, "u": 6, "m": 5})

    def test_modules_and_builtin_functions(self):
        bound = _args.ArgParser(torch.nn.Linear(2, 2)).bind((1,), {})
        self.assertEqual(bound.names, ("input",))
        self.assertEqual(_args.ArgParser(max).bind((1, 2), {}).names, ("args[0]", "args[1]"))
        with self.assertRaisesRegex(TypeError, "Expected a torch.nn.Module or a callable"):
            _args.ArgParser(3)

    def test_wrong_calls(self):
        def forward(a, b, *, c=0):
            pass

        parser = _args.ArgParser(forward)
        for args, kwargs, message in (
            ((1, 2, 3, 4), {}, r"Too many arguments provided: expected \['a', 'b', 'c'\] \(3\)"),
            ((1, 2, 3), {}, r"Too many arguments provided: expected \['a', 'b'\] \(2\) but got 3"),
            ((1,), {"a": 2}, "Parameter a was passed more than once"),
            ((1,), {"d": 2}, "d is not a valid parameter.Allowed values are"),
        ):
            with self.assertRaisesRegex(AssertionError, message):
                parser.bind(args, kwargs)
        with self.assertRaisesRegex(poptorch.Error, "Mandatory parameter b missing"):
            parser.bind((1,), {})

    def test_dictionaries_warn_once(self):
        parser = _args.ArgParser(lambda x: x)
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            for _ in range(2):
                parser.bind(({},), {})
        self.assertEqual(len(logs.output), 1)
        self.assertIn("Dicts as inputs only have partial support, they can be", logs.output[0])


class ComparisonTest(unittest.TestCase):
    def setUp(self):
        poptorch.logger.setLevel("ERROR")
        self.addCleanup(poptorch.setLogLevel, "WARN")

    def check(self, call, message, *args, **kwargs):
        with self.assertRaisesRegex(poptorch.Error, message) as context:
            call(*args, **kwargs)
        self.assertIn("'poptorch_py_error': ", str(context.exception))
        self.assertIn("don't match those the model was compiled with", str(context.exception))
        self.assertIn("call destroy()", str(context.exception))

    def test_tensors_have_names_and_are_not_copied(self):
        tensors = [one() for _ in range(5)]
        a, b, c, d, e = tensors
        call = Call(lambda x, y, *z, k=None: 0, a, [b, (c, 3)], {"q": d}, k=e)
        found = call(a, [b, (c, 3)], {"q": d}, k=e)
        self.assertEqual([each.name for each in found], ["x", "y[0]", "y[1][0]", "z[0][q]", "k"])
        for each, tensor in zip(found, tensors):
            self.assertIs(each.tensor, tensor)

    def test_optional_tensors_are_inputs(self):
        default = one()
        call = Call(lambda x, y=default: 0, one())
        self.assertIs(call(one())[1].tensor, default)
        other = one()
        self.assertIs(call(one(), y=other)[1].tensor, other)

    def test_tensors(self):
        call = Call(lambda t: 0, (one(), one()))
        self.check(
            call,
            r"Data type mismatch for t\[1\]: expected torch.float32 but got torch.int64",
            (one(), one().long()),
        )
        self.check(
            call,
            r"Shape mismatch for t\[0\]: expected torch.Size\(\[1\]\) but got torch.Size\(\[2\]\)",
            (one(2), one()),
        )
        self.check(call, r"Length mismatch for t: expected 2 elements but got 1", (one(),))
        self.check(call, "Type mismatch for t: expected .*tuple.* but got .*list", [one(), one()])

    def test_parameters_are_tensors(self):
        call = Call(lambda t: 0, one())
        self.assertFalse(call(torch.nn.Parameter(one()))[0].tensor.requires_grad)

    def test_dictionaries(self):
        call = Call(lambda d: 0, {"x": one(), "y": one()})
        x, y = one(), one()
        found = call({"y": y, "x": x})
        self.assertIs(found[0].tensor, x)
        self.assertIs(found[1].tensor, y)
        self.check(call, r"Keys mismatch for d: Missing arguments: x\.", {"y": y})
        self.check(call, r"Unexpected arguments: z\.", {"x": x, "y": y, "z": x})
        self.check(call, "Unexpected arguments: z. Missing arguments: x, y", {"z": x})

    def test_constants(self):
        call = Call(lambda a, b=5, c=None: 0, one(), 5, "text")
        self.check(call, "Value mismatch for b: expected 5 but got 3", one(), 3, "text")
        self.check(call, "Value mismatch for c: expected text but got word", one(), 5, "word")
        self.check(call, "Type mismatch for c: expected .*str.* but got .*None", one())
        self.check(call, "Type mismatch for a: expected .*Tensor.* but got .*None", None, 5, "text")
        nan = float("nan")
        self.assertEqual(Call(lambda a: 0, nan)(nan), [])
        array = Call(lambda a: 0, np.arange(3))
        self.assertEqual(array(np.arange(3)), [])
        self.check(array, "Value mismatch for a", np.arange(3) + 1)

    def test_variadic_arguments(self):
        call = Call(lambda a, *c, z=None, **w: 0, 2, one(), one(), z=one(), m=one())
        self.check(
            call,
            "Number of positional arguments mismatch: expected 3 arguments but got 2",
            2,
            one(),
            z=one(),
            m=one(),
        )
        self.check(call, "Missing arguments: m.", 2, one(), one(), z=one())
        self.check(call, "Type mismatch for z: expected .*Tensor", 2, one(), one(), m=one())
        forwarding = Call(lambda *args, **kwargs: 0, one(), z=one())
        self.check(forwarding, "Missing arguments: z.", one())

    def test_parsed_types(self):
        poptorch.registerCustomArgParser(Pair, PairParser())
        self.addCleanup(poptorch.registerCustomArgParser, Pair, None)
        call = Call(lambda p: 0, Pair(one(), one()))
        x, y = one(), one()
        self.assertEqual([each.name for each in call(Pair(x, y))], ["p[0]", "p[1]"])
        self.check(call, "Length mismatch for p: expected 2 elements but got 1", Pair(x, None))
        self.check(call, r"Shape mismatch for p\[1\]", Pair(x, one(3)))
        self.check(call, "Type mismatch for p: expected .*Pair.* but got .*tuple", (x, y))

    def test_tensors_are_made_contiguous_with_one_warning(self):
        poptorch.setLogLevel("WARN")
        call = Call(lambda t: 0, one(2, 3))
        with self.assertLogs("poptorch::python", "WARNING") as logs:
            for _ in range(2):
                (found,) = call(one(3, 2).t())
        self.assertTrue(found.tensor.is_contiguous())
        self.assertEqual(len(logs.output), 1)
        self.assertIn("At least one input tensor is not contiguous: non-", logs.output[0])

    def test_description_keeps_no_tensor(self):
        import gc  # pylint: disable=import-outside-toplevel
        import weakref  # pylint: disable=import-outside-toplevel

        tensor = one(5)
        reference = weakref.ref(tensor)
        description = _args.Description(_args.ArgParser(lambda x: 0).bind(([tensor],), {}))
        del tensor
        gc.collect()
        self.assertIsNone(reference())
        self.assertEqual(len(description.tensors(_args.Arguments(([one(5)],), ("x",), {}))), 1)


class StructureTest(unittest.TestCase):
    def test_structures_are_rebuilt(self):
        class Outputs(collections.OrderedDict):
            pass

        poptorch.registerCustomArgParser(Pair, PairParser())
        self.addCleanup(poptorch.registerCustomArgParser, Pair, None)
        outputs = Outputs()
        outputs["sum"] = one()
        value = [Point(one(), "y"), outputs, Pair(one(), one()), None]
        replaced = _args.with_tensors(value, lambda tensor: tensor + 1)
        self.assertEqual((replaced[0].x.item(), replaced[0].y), (2, "y"))
        self.assertIs(type(replaced[1]), Outputs)
        self.assertEqual((replaced[1]["sum"].item(), outputs["sum"].item()), (2, 1))
        self.assertEqual((replaced[2].second.item(), replaced[3]), (2, None))

    def test_registering(self):
        message = "arg_parser must inherit from ICustomArgParser"
        with self.assertRaisesRegex(AssertionError, message):
            poptorch.registerCustomArgParser(Pair, object())
        poptorch.registerCustomArgParser(Pair, PairParser())

        class Derived(Pair):
            pass

        self.assertIsInstance(_custom_parsers.parser_of(Derived(1, 2)), PairParser)
        poptorch.registerCustomArgParser(Pair, None)
        self.assertIsNone(_custom_parsers.parser_of(Derived(1, 2)))


if __name__ == "__main__":
    unittest.main()
