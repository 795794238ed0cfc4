"""`python3 -m poptorch.check` on scripts that can and cannot be compiled."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import poptorch
from poptorch import check

_GOOD = """
    import sys
    import torch
    import poptorch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)
            self.loss = torch.nn.CrossEntropyLoss()

        def forward(self, x, labels=None):
            with poptorch.Block("first", ipu_id=0):
                x = self.fc(x)
            with poptorch.Block("second", ipu_id=1):
                x = torch.relu(x)
                return x if labels is None else (x, self.loss(x, labels))

    net = Net()
    options = poptorch.Options().deviceIterations(3)
    options.Training.gradientAccumulation(4)
    training = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.1))
    out, loss = training(torch.ones(24, 4), torch.zeros(24, dtype=torch.int64))
    training.setOptimizer(torch.optim.SGD(net.parameters(), lr=0.01))
    before = net.fc.weight.clone()
    training.detachFromDevice()
    inference = poptorch.inferenceModel(net, poptorch.Options().deviceIterations(2))
    result = inference(torch.ones(8, 4))
    print(sys.argv[1:], tuple(out.shape), tuple(loss.shape), tuple(result.shape), result.dtype)
    assert torch.equal(net.fc.weight, before) and not result.any()
"""

_BAD = """
    import torch
    import poptorch

    class Block(torch.nn.Module):
        def forward(self, x):
            return torch.special.erfc(x) + x.tan()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Sequential(Block(), Block())

        def forward(self, x):
            with poptorch.Block("only", ipu_id=0):
                return torch.tan(self.inner(x)).sum()

    model = poptorch.inferenceModel(Net())
    assert model(torch.ones(3)) == 0
    assert model(torch.ones(3)) == 0
"""


class CheckTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.script = str(pathlib.Path(directory.name) / "net.py")

    def write(self, text: str) -> None:
        pathlib.Path(self.script).write_text(textwrap.dedent(text))

    def main(self, *arguments, without=()):
        """Runs the check in this process; gives (exit code, output, errors).

        Args:
            without: operators that cannot be compiled, whatever the extension says.
        """
        extension = mock.Mock(wraps=poptorch.poptorch_core)
        extension.StatusError = poptorch.poptorch_core.StatusError
        known = [name for name in extension.operators() if name not in without]
        extension.operators = lambda: known
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            with mock.patch.object(check, "core", lambda: extension):
                code = check.main(list(arguments))
        return code, out.getvalue(), errors.getvalue()

    def test_good_scripts_run_as_without_the_check(self):
        self.write(_GOOD)
        environment = dict(os.environ, IPUOF_CONFIG_PATH="/nonexistent")
        environment.pop("POPTORCH_IPU_MODEL", None)
        run = subprocess.run(
            [sys.executable, "-m", "poptorch.check", self.script, "--epochs", "2"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertRegex(run.stdout, r"\ANet: all \d+ operators can be compiled\n")
        # Final of 24 rows for training: one micro-batch of 2; all 8 for inference.
        self.assertIn("['--epochs', '2'] (2, 2) () (8, 2) torch.float32", run.stderr)

    def test_all_calls_of_unknown_operators_are_listed_once(self):
        self.write(_BAD)
        code, out, errors = self.main(self.script, without=["tan.default", "erfc.default"])
        self.assertEqual((code, errors), (1, ""))
        script = self.script
        self.assertEqual(
            out.splitlines(),
            [
                f"{script}:7: aten::erfc (by special_erfc) in module 'inner.0' of Net",
                f"{script}:7: aten::tan (by tan) in module 'inner.0' of Net",
                f"{script}:7: aten::erfc (by special_erfc) in module 'inner.1' of Net",
                f"{script}:7: aten::tan (by tan) in module 'inner.1' of Net",
                f"{script}:16: aten::tan (by tan) in Net",
                "Net: 5 of 8 operators cannot be compiled",
            ],
        )

    def test_functions_of_the_host(self):
        self.write(
            """
            import torch
            import poptorch

            calls = []

            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.fc = torch.nn.Linear(4, 2)
                    self.host = poptorch.CPU(self.on_host, "host")

                def on_host(self, x):
                    calls.append(x.shape)
                    return x.flip(0)

                def forward(self, x):
                    return torch.relu(self.host(self.fc(x)).tan())

            options = poptorch.Options().deviceIterations(3).replicationFactor(2)
            model = poptorch.inferenceModel(Net(), options)
            out = model(torch.ones(12, 4))
            assert out.shape == (12, 2) and not out.any()
            assert len(calls) == 7 and set(calls) == {(2, 2)}
            """
        )
        code, out, errors = self.main(self.script)
        self.assertEqual((code, errors), (0, ""), out)
        self.assertRegex(out, r"\ANet: all \d+ operators can be compiled\n\Z")
        code, out, _ = self.main(self.script, without=["tan.default"])
        self.assertEqual(code, 1)
        self.assertIn(f"{self.script}:18: aten::tan (by tan) in Net\n", out)

    def test_what_else_a_model_cannot_do_is_said_with_its_line(self):
        self.write(
            """
            import torch
            import poptorch

            def double(x):
                return x * x.max().item()

            poptorch.inferenceModel(double)(torch.ones(3))
            """
        )
        code, out, _ = self.main(self.script)
        self.assertEqual(code, 1)
        self.assertIn(f"{self.script}:6: Error: aten::item is only supported in eager mode", out)
        self.assertIn("What comes after this line was not checked.", out)

    def test_scripts_that_fail_or_call_no_model(self):
        for text, said in (
            ("value = 1", "no model of poptorch was called"),
            ("raise SystemExit(3)", "the script ended with 3"),
            ("[][1]", ":1: IndexError: list index out of range"),
        ):
            self.write(text)
            code, out, _ = self.main(self.script)
            self.assertEqual(code, 1)
            self.assertIn(said, out)

    def test_wrong_arguments(self):
        for arguments, expected, said in (
            ([], 2, "no script is named"),
            (["--fast"], 2, "unknown argument '--fast'"),
            ([self.script], 1, f"cannot read the script '{self.script}': No such file or directory"),
        ):
            code, out, errors = self.main(*arguments)
            self.assertEqual((code, out), (expected, ""))
            self.assertIn(f"poptorch.check: error: {said}", errors)

    def test_executors_are_put_back(self):
        self.write("raise SystemExit(3)")
        before = (sys.argv, sys.path[:], vars(check._executor).copy())
        self.main(self.script)
        self.assertEqual((sys.argv, sys.path, vars(check._executor)), before)


if __name__ == "__main__":
    unittest.main()
