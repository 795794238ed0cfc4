"""The module vpod on the IPUModel: models against numpy, and calls that are wrong."""

import ast
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import numpy as np
import vpod


def evaluate(build, arrays, **options):
    """Runs a function of tensors on arrays."""
    graph = vpod.Graph()
    inputs = [graph.input(f"x{i}", array.shape, array.dtype) for i, array in enumerate(arrays)]
    graph.output("y", build(*inputs))
    executable = vpod.compile(graph, [vpod.Program("run")], **options)
    with vpod.Session(executable) as session:
        return session.run("run", {f"x{i}": array for i, array in enumerate(arrays)})["y"]


def poprun(total, local):
    """What poprun tells the first instance of the replicas."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": str(total),
        "POPDIST_NUM_LOCAL_REPLICAS": str(local),
        "POPDIST_REPLICA_INDEX_OFFSET": "0",
    }


class OperationsTest(unittest.TestCase):
    def check(self, ours, numpys, *arrays):
        arrays = [np.asarray(array, np.float32) for array in arrays]
        expected = numpys(*arrays)
        result = evaluate(ours, arrays)
        self.assertEqual(result.shape, np.shape(expected))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)

    def test_operators(self):
        a, b = np.arange(1, 7).reshape(2, 3), np.array([3, 1, 2])
        for operation in (
            lambda x, y: x + y,
            lambda x, y: 2 - x * y,
            lambda x, y: x / y + 1 / x,
            lambda x, y: -x**2 + 2**y,
            lambda x, y: abs(x - 4) % y,
        ):
            self.check(operation, operation, a, b)
        self.check(lambda x, y: x @ y.reshape([3, 1]), lambda x, y: x @ y.reshape(3, 1), a, b)
        self.check(lambda x, y: vpod.select(x > y, x, 0), lambda x, y: np.where(x > y, x, 0), a, b)
        self.assertEqual(evaluate(lambda x: x <= 2, [np.float32([1, 2, 3])]).dtype, np.dtype(bool))

    def test_equality_is_a_tensor(self):
        a, b = np.float32([1, 2, 3]), np.float32([1, 5, 3])
        for operation in (lambda x, y: x == y, lambda x, y: x != y):
            np.testing.assert_array_equal(evaluate(operation, [a, b]), operation(a, b))
        for operation in (lambda x: x == 2, lambda x: 2 != x):
            np.testing.assert_array_equal(evaluate(operation, [a]), operation(a))
        x = vpod.Graph().input("x", [2])
        self.assertFalse(x == None)  # noqa: E711
        self.assertTrue(x != "x")
        self.assertEqual({x: 1}[x], 1)

    def test_functions(self):
        x = np.linspace(0.25, 2, 6).reshape(2, 3)
        for name in ("exp", "log", "sqrt", "sin", "tanh", "floor", "abs"):
            self.check(getattr(vpod, name), getattr(np, name), x)
        self.check(lambda t: vpod.maximum(t, 1), lambda t: np.maximum(t, 1), x)
        self.check(vpod.rsqrt, lambda t: 1 / np.sqrt(t), x)

    def test_subscripts(self):
        x = np.arange(24).reshape(2, 3, 4)
        for key in (1, -1, (0, 2), (slice(None), 1), (slice(1), slice(0, 3, 2)), (..., slice(1, 3)), (0, ..., 3)):
            with self.subTest(key=key):
                self.check(lambda t, key=key: t[key], lambda t, key=key: t[key], x)

    def test_integers_of_numpy(self):
        x = np.arange(24).reshape(2, 3, 4)
        one = np.int64(1)
        self.check(lambda t: t[one, ..., np.uint8(2)], lambda t: t[1, ..., 2], x)
        self.check(lambda t: t.sum(one), lambda t: t.sum(1), x)
        self.check(lambda t: t.sum((np.int32(0), -one)), lambda t: t.sum((0, 2)), x)
        self.check(lambda t: t.sum(range(2)), lambda t: t.sum((0, 1)), x)
        self.check(lambda t: t.sum(np.array([0, 2])), lambda t: t.sum((0, 2)), x)
        image = np.arange(16).reshape(1, 1, 4, 4)
        for stride in (np.int64(2), (np.int64(2), 2), np.array([2, 2])):
            self.check(lambda t: vpod.max_pool(t, 1, stride), lambda t: t[..., ::2, ::2], image)
        graph = vpod.Graph()
        part = graph.aten("select.int", graph.input("x", [2, 3]), one, np.int64(2))[0]
        self.assertEqual(graph.aten("repeat.default", part, [one, 2])[0].shape, (1, 4))

    def test_axes(self):
        x = np.arange(1, 25).reshape(2, 3, 4) / 10
        self.check(lambda t: t.sum(), lambda t: t.sum(), x)
        self.check(lambda t: t.mean([0, -1], keepdims=True), lambda t: t.mean((0, 2), keepdims=True), x)
        self.check(lambda t: t.prod(1), lambda t: t.prod(1), x)
        self.check(lambda t: t.cumsum(-1), lambda t: t.cumsum(-1), x)
        self.check(lambda t: t.transpose([2, 0, 1]), lambda t: t.transpose(2, 0, 1), x)
        self.check(lambda t: vpod.concat([t, t], -1), lambda t: np.concatenate([t, t], -1), x)
        self.check(lambda t: t.sort(-1, descending=True, count=2)[0], lambda t: t[..., :1:-1], x)
        self.check(lambda t: t.softmax(1).sum(1), lambda t: np.ones((2, 4)), x)

    def test_images(self):
        image = np.arange(16.0).reshape(1, 1, 4, 4)
        self.check(lambda t: vpod.max_pool(t, 2), lambda t: np.array([[[[5, 7], [13, 15]]]]), image)
        self.check(lambda t: vpod.average_pool(t, 2, stride=2), lambda t: np.array([[[[2.5, 4.5], [10.5, 12.5]]]]), image)
        kernel = np.ones((1, 1, 3, 3))
        self.check(lambda t, w: vpod.convolution(t, w)[0, 0, 0], lambda t, w: np.array([45, 54]), image, kernel)
        self.check(lambda t: vpod.resize(t, [2, 2]), lambda t: t[..., ::2, ::2], image)

    def test_gradients(self):
        graph = vpod.Graph()
        x, other = graph.input("x", [3]), graph.input("other", [3])
        gradient, none = graph.gradients((x * x).sum(), [x, other])
        self.assertIsNone(none)
        graph.output("dx", gradient)
        with vpod.Session(vpod.compile(graph, [vpod.Program("run")])) as session:
            np.testing.assert_array_equal(session.run("run", {"x": [1, 2, 3]})["dx"], [2, 4, 6])


class Regression(unittest.TestCase):
    """A model, and ways to open it and to feed it."""

    def setUp(self):
        self.graph = vpod.Graph()
        x, t = self.graph.input("x", [8, 3]), self.graph.input("t", [8])
        w = self.graph.variable("w", np.zeros((3, 1), np.float32))
        error = (x @ w).reshape([-1]) + self.graph.variable("b", vpod.filled([1])) - t
        self.errors, self.inputs = error * error, x
        self.loss = self.errors.mean()
        self.graph.output("loss", self.loss)
        self.random = np.random.default_rng(7)

    def open(self, replicas=1, optimizer=vpod.Sgd(0.1), **options):
        train = vpod.Program("train", loss=self.loss, optimizer=optimizer, **options)
        return vpod.Session(vpod.compile(self.graph, [train, vpod.Program("infer")], total_replicas=replicas))

    def data(self, *leading):
        x = self.random.normal(size=(*leading, 8, 3))
        return {"x": x, "t": x @ [1, -2, 0.5] + 3}


class SessionTest(Regression):
    def test_learns(self):
        for replicas, optimizer in ((1, vpod.Sgd(0.1, momentum=0.5)), (4, vpod.Adam(0.1))):
            with self.open(replicas, optimizer) as session:
                for _ in range(300):
                    losses = session.run("train", self.data(*[replicas] * (replicas > 1)))["loss"]
                self.assertEqual(losses.shape, (replicas,) if replicas > 1 else ())
                self.assertLess(losses.max(), 1e-4)
                np.testing.assert_allclose(session.read("w", replicas - 1).ravel(), [1, -2, 0.5], atol=0.01)

    def test_leading_dimensions(self):
        with self.open(2, accumulation=3, device_iterations=2) as session:
            self.assertEqual(session.run("train", self.data(2, 6))["loss"].shape, (2, 6))
            self.assertEqual(session.run("infer", self.data(2))["loss"].shape, (2,))
            self.assertEqual(session.run("infer", self.data(2, 1))["loss"].shape, (2,))
            with self.assertRaisesRegex(ValueError, 
                    r"input 'x' takes \[2,6,8,3\] \(2 replicas of this process, 6 micro-batches of a run, then \[8,3\]\), "
                    r"and not \[2,8,3\]"):
                session.run("train", self.data(2))

    def test_variables(self):
        with self.open() as session:
            self.assertEqual(session.variables["w"], ((3, 1), np.dtype("float32")))
            self.assertLess({"w", "b"}, set(session.variables))
        with self.open() as session, tempfile.TemporaryDirectory() as directory:
            session.write("w", [[1], [2], [3]])
            path = pathlib.Path(directory, "weights.npz")
            session.save(path)
            np.testing.assert_array_equal(np.load(path)["w"].ravel(), [1, 2, 3])
            session.write("w", np.zeros((3, 1)))
            session.load(path)
            np.testing.assert_array_equal(session.read("w").ravel(), [1, 2, 3])
            np.savez(path, w=np.float32([[4], [5], [6]]))
            with self.assertRaisesRegex(ValueError, f"{path}: the file lacks variable 'b'; allow_missing keeps"):
                session.load(str(path))
            session.load(bytes(path), allow_missing=True)
            np.testing.assert_array_equal(session.read("w").ravel(), [4, 5, 6])
            session.write("w", [[1], [2], [3]])
            session.set_learning_rate(0)
            session.run("train", self.data())
            np.testing.assert_array_equal(session.read("w").ravel(), [1, 2, 3])
            session.set_hyper_parameters(vpod.Sgd(0.1))
            session.run("train", self.data())
            self.assertNotEqual(session.read("w")[0, 0], 1)

    def test_types(self):
        for dtype in ("float32", "float16", "int8", "int16", "int32", "uint8", "uint16", "uint32", "bool"):
            array = np.array([0, 1, 1], dtype)
            result = evaluate(lambda x: x.reshape([3, 1]), [array])
            self.assertEqual(result.dtype, np.dtype(dtype))
            np.testing.assert_array_equal(result.ravel(), array)
        graph = vpod.Graph()
        graph.output("y", graph.input("x", [2], "int32") + 1)
        with vpod.Session(vpod.compile(graph, [vpod.Program("run")])) as session:
            np.testing.assert_array_equal(session.run("run", {"x": np.array([1, -5])})["y"], [2, -4])
            with self.assertRaisesRegex(ValueError, "stream 'x'.*4294967296"):
                session.run("run", {"x": [1, 2**32]})
            with self.assertRaises(ValueError):
                session.run("run", {"x": [0.5, 1]})

    def test_first_values_are_exact(self):
        graph = vpod.Graph()
        firsts = {
            "odd": np.array([2**24 + 1, -(2**31), 2**31 - 1], np.int32),
            "unsigned": np.array([2**32 - 1, 2**24 + 1], np.uint32),
            "listed": np.array([2**24 + 1], np.int32),
            "filled": np.full(2, 2**32 - 1, np.uint32),
            "halves": np.float16([0.1, 65504]),
            "mask": np.array([True, False]),
        }
        buffers = {name: graph.buffer(name, firsts[name]) for name in ("odd", "unsigned", "halves", "mask")}
        buffers["listed"] = graph.buffer("listed", [2**24 + 1], "int32")
        buffers["filled"] = graph.buffer("filled", vpod.filled([2], 2**32 - 1, "uint32"))
        for wrong, dtype in (([2**31], "int32"), (vpod.filled([1], 2**32), "uint32"), ([0.5], "int8")):
            with self.assertRaisesRegex(ValueError, "'wrong'"):
                graph.buffer("wrong", wrong, dtype)
        for name, buffer in buffers.items():
            graph.output(name + " out", buffer)
        with vpod.Session(vpod.compile(graph, [vpod.Program("run")])) as session:
            outputs = session.run("run")
            for name, first in firsts.items():
                for array in (session.read(name), outputs[name + " out"]):
                    np.testing.assert_array_equal(array, first)
                    self.assertEqual(array.dtype, first.dtype)

    def test_an_ipu_is_entered_once(self):
        graph = vpod.Graph()
        context = graph.ipu(1)
        with context:
            with self.assertRaisesRegex(vpod.Error, "entered already"):
                context.__enter__()
        context.__exit__()
        # On the IPU of before again: one is enough.
        graph.output("y", graph.input("x", [2]) + 1)
        vpod.compile(graph, [vpod.Program("run")], ipus_per_replica=1)
        with context:  # may be entered again
            pass

    def test_a_graph_is_compiled_as_it_was(self):
        hashes = set()
        for _ in range(30):
            graph = vpod.Graph()
            x = graph.input("x", [4])
            for _ in range(400):
                x = x * 0.5 + 1
            graph.output("y", x)
            compiling = threading.Event()

            def build():
                compiling.wait()
                for _ in range(5000):
                    graph.constant(0, [3])

            builder = threading.Thread(target=build)
            builder.start()
            compiling.set()
            hashes.add(vpod.compile(graph, [vpod.Program("run")]).hash)
            builder.join()
        self.assertEqual(len(hashes), 1)
        self.assertRegex(hashes.pop(), "^[0-9a-f]{64}$")

    def test_others_run_while_a_device_is_read_and_written(self):
        graph = vpod.Graph()
        x = graph.buffer("x", vpod.filled([4096, 4096]))
        graph.output("y", x[0, 0])
        ticks, done = [0], threading.Event()

        def count():
            while not done.is_set():
                ticks[0] += 1
                time.sleep(0)

        counter = threading.Thread(target=count)
        interval = sys.getswitchinterval()
        with vpod.Session(vpod.compile(graph, [vpod.Program("run")])) as session:
            values = session.read("x")
            counter.start()
            sys.setswitchinterval(100)  # so that others run only while a call lets them
            try:
                for call in (lambda: session.read("x"), lambda: session.write("x", values)):
                    for _ in range(50):  # the machine may be busy
                        before = ticks[0]
                        call()
                        if ticks[0] > before:
                            break
                    self.assertGreater(ticks[0], before)
            finally:
                sys.setswitchinterval(interval)
                done.set()
                counter.join()

    def test_an_error_of_the_program_leaves_the_session(self):
        graph = vpod.Graph()
        graph.output("y", graph.input("x", [3]).gather(graph.input("i", [1], "int32")))
        with vpod.Session(vpod.compile(graph, [vpod.Program("run")])) as session:
            with self.assertRaisesRegex(ValueError, "gather.*7"):
                session.run("run", {"x": [1, 2, 3], "i": [7]})
            np.testing.assert_array_equal(session.run("run", {"x": [1, 2, 3], "i": [2]})["y"], [3])

    def test_random_elements_are_new_in_each_run(self):
        graph = vpod.Graph()
        graph.output("y", graph.random([4]))
        with vpod.Session(vpod.compile(graph, [vpod.Program("infer", device_iterations=3)])) as session:
            draws = np.concatenate([session.run("infer")["y"] for _ in range(3)])
        self.assertEqual(len(np.unique(draws, axis=0)), 9)

    def test_a_forked_child_has_no_session(self):
        graph = vpod.Graph()
        graph.output("y", graph.buffer("x", [3.0], "float32"))
        session = vpod.Session(vpod.compile(graph, [vpod.Program("run")]))
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: session.run("run"), lambda: session.read("x"), lambda: session.write("x", [1])):
                try:
                    call()
                except vpod.Error as error:
                    refused += f"the session is of process {os.getppid()} and cannot be used" in str(error)
            session.close()
            os._exit(refused)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 3)
        np.testing.assert_array_equal(session.run("run")["y"], [3])
        session.close()

    def test_a_forked_child_has_no_device(self):
        graph = vpod.Graph()
        graph.output("y", graph.buffer("x", [3.0], "float32"))
        executable, device = vpod.compile(graph, [vpod.Program("run")]), vpod.ipu_model()
        child = os.fork()
        if child == 0:
            refused = False
            try:
                vpod.Session(executable, device)
            except vpod.Error as error:
                refused = f"the device is of process {os.getppid()} and cannot be used" in str(error)
            del device  # and waits for nothing
            with vpod.Session(executable, vpod.ipu_model()) as session:
                own = session.run("run")["y"][0] == 3
            os._exit(0 if refused and own else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        with vpod.Session(executable, device) as session:
            np.testing.assert_array_equal(session.run("run")["y"], [3])

    def test_tensors_keep_their_graph(self):
        x = vpod.Graph().input("x", [2])
        self.assertEqual((x + x).shape, (2,))

    def test_layers(self):
        graph = vpod.Graph()
        net = vpod.nn.Builder(graph, seed=1, training=True)
        x = net.convolution("conv", graph.input("images", [2, 1, 8, 8]), 4, kernel=3, padding=1)
        x = net.global_average_pool(vpod.relu(net.batch_norm("bn", x)))
        x = net.lstm("lstm", x.reshape([2, 2, 2]), 3, bidirectional=True)
        graph.output("y", net.into("head").linear("fc", net.flatten(net.layer_norm("ln", x)), 5))
        executable = vpod.compile(graph, [vpod.Program("run")])
        self.assertEqual(executable.variables["head.fc.weight"], ((5, 12), np.dtype("float32")))
        self.assertEqual(executable.streams["y"][0], (2, 5))

    def test_control_c_ends_a_run(self):
        program = """
import os, signal, threading, vpod
graph = vpod.Graph()
x = graph.buffer("x", vpod.filled([1024, 1024], 1))
graph.output("y", (x @ x).sum())
session = vpod.Session(vpod.compile(graph, [vpod.Program("run", device_iterations=1000000)]))
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    session.run("run")
except KeyboardInterrupt:
    print("interrupted")
try:
    session.run("run")
except vpod.Error as error:
    print(error)
"""
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(result.stdout, "interrupted\nthe run was cancelled\n", result.stderr)
        self.assertEqual(result.returncode, 0)

    def test_a_planned_program_unwinds(self):
        program = """
import atexit, sys, vpod
atexit.register(lambda: print("at exit"))
graph = vpod.Graph()
graph.output("y", graph.buffer("x", vpod.filled([4], 1)).sum())
executable = vpod.compile(graph, [vpod.Program("run")])
print("before")
try:
    vpod.Session(executable)
    print("not reached")
finally:
    print("finally")
"""
        with tempfile.TemporaryDirectory() as directory:
            environment = {**os.environ, "VPOD_PLAN_DIRECTORY": directory}
            result = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, env=environment
            )
            self.assertEqual(len(os.listdir(directory)), 1)
        self.assertEqual(result.stdout, "before\nfinally\nat exit\n", result.stderr)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class RefusedSessionTest(Regression):
    def compiled(self, replicas):
        train = vpod.Program("train", loss=self.loss, optimizer=vpod.Sgd(0.1))
        return vpod.compile(self.graph, [train], total_replicas=replicas)

    def test_leaves_the_device_to_the_caller(self):
        device = vpod.ipu_model(2)
        with self.assertRaisesRegex(ValueError, "is for 4 replicas, and the job has 2: compile it with"):
            vpod.Session(self.compiled(4), device)
        with vpod.Session(self.compiled(2), device) as session:
            self.assertIn("loss", session.run("train", self.data(2, 1)))

    def test_attaches_to_nothing(self):
        # There is no partition, which is not what the error speaks of.
        with unittest.mock.patch.dict(os.environ, poprun(total=2, local=2)):
            with self.assertRaisesRegex(ValueError, "is for 4 replicas, and the job has 2: compile it with"):
                vpod.Session(self.compiled(4))

    def test_shards_state_within_an_instance(self):
        train = vpod.Program("train", loss=self.loss, optimizer=vpod.Adam(0.1))
        with unittest.mock.patch.dict(os.environ, poprun(total=4, local=2)):
            vpod.compile(self.graph, [train], tensor_shards=2)
            with self.assertRaisesRegex(ValueError, "tensor_shards is 4, must divide the 2 replicas of each instance"):
                vpod.compile(self.graph, [train], tensor_shards=4)
            with self.assertRaisesRegex(ValueError, "tensor_shards is 3, must divide the 4 replicas of the job"):
                vpod.compile(self.graph, [train], tensor_shards=3)
            vpod.compile(self.graph, [train], total_replicas=4, tensor_shards=4)  # for another job

    def test_advises_no_shards_that_an_instance_cannot_have(self):
        graph = vpod.Graph()
        x = graph.input("x", [16, 8192], "float16")
        for layer in range(2):
            x = x @ graph.variable(f"w{layer}", vpod.filled([8192, 8192], 0.01), "float16")
        train = vpod.Program("train", loss=x.mean(), optimizer=vpod.Adam(0.1))
        for local, is_advised in ((4, True), (2, True), (1, False)):
            with unittest.mock.patch.dict(os.environ, poprun(total=4, local=local)):
                with self.assertRaises(vpod.Error) as raised:
                    vpod.compile(graph, [train])
            self.assertEqual("(tensor_shards): " in str(raised.exception), is_advised, raised.exception)


class NoPartitionTest(unittest.TestCase):
    def test_is_not_a_wrong_argument(self):
        program = """
import vpod
try:
    vpod.attach()
except vpod.Error as error:
    print(error)
"""
        with tempfile.TemporaryDirectory() as home:
            environment = {
                **{name: value for name, value in os.environ.items() if not re.match("IPUOF|VIPU|VPOD|POPDIST", name)},
                "HOME": home,
            }
            result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        self.assertIn("no active partition", result.stdout, result.stderr)
        self.assertEqual(result.returncode, 0)


class CacheTest(Regression):
    def test_an_executable_is_compiled_once(self):
        with tempfile.TemporaryDirectory() as directory:
            os.environ["POPDIST_EXECUTABLE_CACHE_PATH"] = directory
            try:
                written = []
                for _ in range(2):
                    self.open().close()
                    (file,) = pathlib.Path(directory).glob("*.vipuexe")
                    written.append((file.stat().st_ino, file.stat().st_mtime_ns))
            finally:
                del os.environ["POPDIST_EXECUTABLE_CACHE_PATH"]
            self.assertEqual(*written)


class WrongCallsTest(Regression):
    """Each call raises an error that says what is wrong; everything can be used afterwards."""

    def refused(self, call, error, message):
        with self.subTest(message):
            with self.assertRaisesRegex(error, message):
                call()

    def test_building(self):
        g = vpod.Graph()
        x, i, other = g.input("x", [2, 3]), g.input("i", [2], "int32"), vpod.Graph().input("x", [2, 3])
        image = g.input("image", [1, 4, 6, 6])
        calls = [
            (lambda: g.input("x", [1]), ValueError, "the name 'x' is used twice"),
            (lambda: g.input("y", [-1]), ValueError, "y"),
            (lambda: g.input("y", [1], "int64"), ValueError, "elements of int64, must be float32, "),
            (lambda: g.input("y", [1], "complex64"), ValueError, "complex64"),
            (lambda: g.input("y", [1], "flaot"), ValueError, "'flaot' is not a type"),
            (lambda: g.input("y", "three"), TypeError, "input"),
            (lambda: g.input("y", [1.5]), TypeError, "input"),
            (lambda: g.input(5, [1]), TypeError, "input"),
            (lambda: g.variable("w", "abc"), ValueError, "first values must be numbers"),
            (lambda: g.variable("w", [None]), ValueError, "first values must be numbers"),
            (lambda: g.variable("w", ["1.5"]), ValueError, "first values must be numbers"),
            (lambda: g.variable("w", np.array([1 + 2j])), ValueError, "first values must be numbers"),
            (lambda: g.variable("w", {}), (TypeError, ValueError), "first values"),
            (lambda: g.variable("w", [1, 2], "int32"), ValueError, "cannot be trained"),
            (lambda: vpod.uniform([2], -1, seed=1), ValueError, "with a bound of -1, must be 0 or more and finite$"),
            (lambda: vpod.normal([2], -1, seed=1), ValueError, "with a deviation of -1, must be 0 or more and finite$"),
            (lambda: vpod.normal([2], float("nan"), 1), ValueError, "with a deviation of nan, must be 0 or more"),
            (lambda: vpod.normal([2], float("inf"), 1), ValueError, "with a deviation of inf, must be 0 or more"),
            (lambda: g.buffer("w", vpod.normal([2], 1, 1), "int32"), ValueError, "'w'.*that int32 cannot hold$"),
            (lambda: g.buffer("w", [300], "uint8"), ValueError, "uint8"),
            (lambda: g.constant(0.5, dtype="int32"), ValueError, "0.5"),
            (lambda: g.random([2], "cauchy"), ValueError, "'uniform', 'normal' or 'bits'"),
            (lambda: g.output("x", x), ValueError, "'x' is used twice"),
            (lambda: g.output("y", other), ValueError, "of another graph"),
            (lambda: g.output("y", 3), TypeError, "output"),
            (lambda: g.assign(x, x), ValueError, "buffer"),
            (lambda: g.gradients(x, [other]), ValueError, "of another graph"),
            (lambda: x + other, ValueError, "of another graph"),
            (lambda: x + i, ValueError, "float32.*int32"),
            (lambda: x + "one", TypeError, "must be a vpod.Tensor or a number"),
            (lambda: x + None, TypeError, "must be a vpod.Tensor or a number"),
            (lambda: x + "1.5", TypeError, "<class 'str'>, must be a vpod.Tensor or a number"),
            (lambda: x + b"1.5", TypeError, "<class 'bytes'>, must be a vpod.Tensor or a number"),
            (lambda: x + np.str_("1.5"), TypeError, "must be a vpod.Tensor or a number"),
            (lambda: x + 10**400, ValueError, "outside the range of float64"),
            (lambda: x == np.ones((2, 3)), TypeError, "an array is not an operand"),
            (lambda: x == other, ValueError, "of another graph"),
            (lambda: bool(x > 0), TypeError, "has values only when its program runs"),
            (lambda: vpod.nn.Builder(None), TypeError, r"Builder\(\): graph is <class 'NoneType'>, must be a vpod.Graph$"),
            (lambda: vpod.compile(None, []), TypeError, "graph is <class 'NoneType'>, must be a vpod.Graph$"),
            (lambda: x + np.ones((2, 3)), TypeError, "an array is not an operand"),
            (lambda: np.ones((2, 3)) + x, TypeError, "an array is not an operand|unsupported"),
            (lambda: x @ x, ValueError, "matmul does not take"),
            (lambda: x @ 3, TypeError, "matmul|unsupported"),
            (lambda: vpod.add(1, 2), TypeError, "at least one operand"),
            (lambda: vpod.exp(1), TypeError, "exp"),
            (lambda: vpod.exp(i), ValueError, "int32"),
            (lambda: x.reshape([4]), ValueError, "must have 6 elements"),
            (lambda: x.reshape([-1, 4]), ValueError, "must have 6 elements"),
            (lambda: x.transpose([0, 0]), ValueError, "transpose"),
            (lambda: x.transpose([0, 2]), ValueError, "axis 2 does not exist in float32"),
            (lambda: x.sum(2), ValueError, "axis 2 does not exist"),
            (lambda: x.sum(-3), ValueError, "axis -3 does not exist"),
            (lambda: x.sum([0, 0]), ValueError, "without repetition"),
            (lambda: x.sum(1.5), TypeError, "axes is <class 'float'>, must be an integer or a sequence of integers"),
            (lambda: x.sum("a"), TypeError, "axes is <class 'str'>, must be an integer or a sequence"),
            (lambda: x.sum([1.5]), TypeError, "axes is <class 'float'>, must be an integer"),
            (lambda: x.sum(2**70), ValueError, "axes is 1180591620717411303424, must be -9223372036854775808 to"),
            (lambda: x.sum(2**40), ValueError, "axis 1099511627776 does not exist"),
            (lambda: x[2], IndexError, "index 2 is outside -2 to 1"),
            (lambda: x[np.int64(-3)], IndexError, "index -3 is outside -2 to 1"),
            (lambda: x[2**70], ValueError, "an index is 1180591620717411303424, must be"),
            (lambda: x[0.5], TypeError, "an index must be"),
            (lambda: x[i], TypeError, "an index must be"),
            (lambda: x[0, 0, 0], IndexError, "too many indices"),
            (lambda: x[..., 0, ...], IndexError, "too many indices"),
            (lambda: x[::-1], ValueError, "step of a slice must be 1 or more"),
            (lambda: x["a"], TypeError, "an index must be"),
            (lambda: x.cast("int64"), ValueError, "int64"),
            (lambda: x.expand([3, 3]), ValueError, "expand"),
            (lambda: x.pad([1], [1]), ValueError, "pad"),
            (lambda: x.gather(x), ValueError, "gather"),
            (lambda: x.gather(other), ValueError, "of another graph"),
            (lambda: x.sort(0, count=3), ValueError, "must be 0 to 2"),
            (lambda: x.dropout(2), ValueError, "2"),
            (lambda: x.dropout(float("nan")), ValueError, "the probability is nan, must be 0 to 1"),
            (lambda: vpod.nn.Builder(g).dropout(x, -0.5), ValueError, "the probability is -0.5, must be 0 to 1"),
            (lambda: vpod.concat([]), ValueError, "at least one tensor"),
            (lambda: vpod.concat(x), TypeError,
             r"concat\(\): tensors is <class 'vpod.Tensor'>, must be a sequence of vpod.Tensors: put it into a list$"),
            (lambda: vpod.concat([x, 3]), TypeError, r"tensors\[1\] is <class 'int'>, must be a vpod.Tensor$"),
            (lambda: g.gradients(x, x), TypeError, "wanted is <class 'vpod.Tensor'>, must be a sequence of vpod.Tensors: put"),
            (lambda: vpod.Tensor(), TypeError, "a vpod.Tensor is not made by calling its class"),
            (lambda: vpod.Device(3), TypeError, "a vpod.Device is not made by calling its class"),
            (lambda: vpod.concat([x, i], 0), ValueError, "concat"),
            (lambda: vpod.max_pool(x, 2), ValueError, "an image is"),
            (lambda: vpod.max_pool(image, [2]), ValueError, "kernel has 1 numbers"),
            (lambda: vpod.max_pool(image, -2), ValueError, "kernel is -2, must be 0 to 4294967295"),
            (lambda: vpod.max_pool(image, [2, 2**32]), ValueError, "kernel is 4294967296, must be 0 to"),
            (lambda: vpod.max_pool(image, 2.5), TypeError, "kernel is <class 'float'>, must be an integer"),
            (lambda: vpod.max_pool(image, [2, "2"]), TypeError, "kernel is <class 'str'>, must be an integer"),
            (lambda: vpod.max_pool(image, 9), ValueError, "max_pool"),
            (lambda: vpod.max_pool(image, "big"), TypeError, "kernel is <class 'str'>"),
            (lambda: vpod.convolution(image, x), ValueError, "weights are"),
            (lambda: vpod.convolution(image, image, groups=3), ValueError, "convolution"),
            (lambda: vpod.resize(image, [0, 1]), ValueError, "resize"),
            (lambda: vpod.resize(image, [3, 3], "sharp"), ValueError, "mode 'sharp' must be"),
            (lambda: vpod.cross_entropy(x, x), ValueError, "cross_entropy"),
            (lambda: vpod.nn.Builder(3), TypeError, "Builder|__init__"),
            (lambda: vpod.nn.Builder(g).linear("fc", other, 2), ValueError, "of another graph"),
            (lambda: vpod.nn.Builder(g).linear("fc", i, 2), ValueError, "fc"),
            (lambda: vpod.nn.Builder(g).self_attention("a", x, 0), ValueError, "heads"),
            (lambda: vpod.nn.Builder(g, seed=-1), ValueError, "seed is -1, must be 0 to 18446744073709551615$"),
            (lambda: vpod.uniform([2], 1, 2**64), ValueError, "seed is 18446744073709551616, must be 0 to"),
            (lambda: vpod.normal([2], 1, 0.5), TypeError, "seed is <class 'float'>, must be an integer$"),
            (lambda: vpod.nn.Builder(g).lstm("a", x, 3, layers=2**40), ValueError, "layers is 1099511627776, which is out of"),
            (lambda: g.input(3, [3]), TypeError, r"input\(\): name is <class 'int'>, must be a string$"),
            (lambda: g.input("a", 3), TypeError, "shape is <class 'int'>, must be a sequence of integers$"),
            (lambda: g.input("a", [3, 2.5]), TypeError, r"shape\[1\] is <class 'float'>, must be an integer$"),
            (lambda: x @ 3, TypeError, "other is <class 'int'>, must be a vpod.Tensor$"),
            (lambda: vpod.relu(np.zeros(3)), TypeError, r"relu\(\): x is <class 'numpy.ndarray'>, must be a vpod.Tensor$"),
            (lambda: vpod.relu(), TypeError, r"relu\(\): missing a required argument: 'x'$"),
        ]
        for call, error, message in calls:
            self.refused(call, error, message)
        g.output("sum", x + x)
        with vpod.Session(vpod.compile(g, [vpod.Program("run")])) as session:
            np.testing.assert_array_equal(session.run("run", {"x": np.ones((2, 3))})["sum"], np.full((2, 3), 2))

    def test_compiling(self):
        g, loss = self.graph, self.loss
        foreign = vpod.Graph().input("x", [])
        program = vpod.Program
        calls = [
            (lambda: vpod.compile(g, []), ValueError, "no program"),
            (lambda: vpod.compile(3, [program("a")]), TypeError, "compile"),
            (lambda: vpod.compile(g, program("a")), TypeError,
             "programs is <class 'vpod.Program'>, must be a sequence of vpod.Programs: put it into a list$"),
            (lambda: vpod.compile(g, [program("a"), program("a")]), ValueError, "'a'"),
            (lambda: vpod.compile(g, [program("")]), ValueError, "name"),
            (lambda: vpod.compile(g, [program("a", loss=foreign)]), ValueError, "of another graph"),
            (lambda: vpod.compile(g, [program("a", loss=loss, accumulation=0)]), ValueError, "accumulation"),
            (lambda: vpod.compile(g, [program("a")], memory_proportions=[1.5]), ValueError,
             "the memory proportion of IPU 0 is 1.5, must be above 0 and at most 1"),
            (lambda: vpod.compile(g, [program("a")], memory_proportions=[0.5, 0.5]), ValueError, "memory_proportions has 2 entries, but a replica has 1 IPU"),
            (lambda: program("a", accumulation=-1), ValueError, "accumulation is -1, must be 1 to 4294967295"),
            (lambda: program("a", device_iterations=2**32), ValueError, "device_iterations is 4294967296, must be 1 to"),
            (lambda: vpod.compile(g, [program("a", loss=loss, optimizer=vpod.Sgd(-0.1))]), ValueError,
             "learning rate is -0.1, must be 0 or more and finite"),
            (lambda: vpod.compile(g, [program("a", loss=loss, optimizer=vpod.Adam(float("nan")))]), ValueError,
             "learning rate is nan"),
            (lambda: vpod.compile(g, [program("a", loss=loss, optimizer=vpod.Sgd(0.1, nesterov=True))]), ValueError,
             "needs a momentum above 0"),
            (lambda: vpod.compile(g, [program("a", loss=loss, optimizer=vpod.Adam(beta2=1))]), ValueError,
             "beta2 is 1, must be 0 or more and below 1"),
            (lambda: vpod.compile(g, [program("a", loss=loss, groups=[(["w"], vpod.Lars(momentum=-1))])]), ValueError,
             "the momentum is -1, must be 0 or more"),
            (lambda: vpod.compile(g, [program("a", loss=loss, optimizer=vpod.Sgd(), clip_norm=-1)]), ValueError, "clip"),
            (lambda: vpod.compile(g, [program("a", loss=loss, optimizer=vpod.Sgd(), groups=[(["q"], vpod.Sgd())])]),
             ValueError, "there is no trainable variable 'q'"),
            (lambda: vpod.compile(g, [program("a", loss=loss)]), ValueError,
             "program 'a' has a loss and no optimizer: choose one, such as SGD"),
            (lambda: vpod.compile(g, [program("a", optimizer=vpod.Adam())]), ValueError,
             "program 'a' has an optimizer and no loss: without a loss nothing is trained"),
            (lambda: vpod.compile(g, [program("a", clip_norm=1)]), ValueError, "program 'a' has clip_norm and no loss"),
            (lambda: vpod.compile(g, [program("a", loss=self.errors, optimizer=vpod.Sgd())]), ValueError,
             r"the loss is float32\[8\], must have one element: take its mean or its sum"),
            (lambda: vpod.compile(g, [program("a", loss=self.inputs.mean(), optimizer=vpod.Sgd())]), ValueError,
             "program 'a': the loss depends on no variable by way of gradients, so that nothing would be trained"),
            (lambda: vpod.compile(g, [program("a", output_period=2, device_iterations=4)]), ValueError,
             "program 'a': output_period is 2, which only output_mode every-n has"),
            (lambda: vpod.compile(g, [program("a")], total_replicas=0), ValueError, "total_replicas is 0, must be 1 to"),
            (lambda: vpod.compile(g, [program("a")], ipus_per_replica=3), ValueError, "3"),
            (lambda: program("a", reduction="max"), ValueError, "must be one of 'mean', 'sum', 'running_mean'"),
            (lambda: vpod.compile(g, [program("a")], schedule="paged"), ValueError,
             "schedule 'paged' must be one of 'sharded', 'phased', 'grouped'"),
            (lambda: vpod.compile(g, [program("a")], recomputation="some"), ValueError, "must be one of 'none'"),
            (lambda: program("a", optimizer="sgd"), TypeError,
             "optimizer is <class 'str'>, must be a vpod.Sgd, a vpod.Adam, a vpod.RmsProp, a vpod.Lamb, a vpod.Lars or None$"),
            (lambda: program("a", groups=[(["w"], 3)]), TypeError, r"groups\[0\]\[1\] is <class 'int'>, must be a vpod.Sgd"),
            (lambda: program("a", loss=3), TypeError, "loss is <class 'int'>, must be a vpod.Tensor or None$"),
            (lambda: program("a", clip_norm="b"), TypeError, "clip_norm is <class 'str'>, must be a number or None$"),
            (lambda: vpod.Sgd(0.1, 0.9), TypeError, r"Sgd\(\): too many positional arguments$"),
            (lambda: vpod.Sgd(float("nan")), ValueError, "learning rate is nan, must be 0 or more and finite"),
            (lambda: vpod.Lamb(beta1=-1), ValueError, "beta1 is -1, must be 0 or more and below 1"),
            (lambda: vpod.Sgd(rate=1), TypeError, r"Sgd\(\): got an unexpected keyword argument 'rate'$"),
        ]
        for call, error, message in calls:
            self.refused(call, error, message)
        self.open().close()

    def test_pipelines(self):
        """Schedules, recomputation and places of state change no result."""
        def losses(**options):
            graph = vpod.Graph()
            x, y = graph.input("x", [4, 8]), None
            w = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8)
            for ipu in range(2):
                with graph.ipu(ipu if options.get("ipus_per_replica", 1) == 2 else 0):
                    y = vpod.tanh(vpod.matmul(x if y is None else y, graph.variable(f"w{ipu}", w)))
                    loss = y.mean()
            graph.output("loss", loss)
            program = vpod.Program("train", loss=loss, optimizer=vpod.Sgd(0.5, momentum=0.9), accumulation=4)
            executable = vpod.compile(graph, [program], **options)
            device = vpod.ipu_model(ipus_per_replica=options.get("ipus_per_replica", 1))
            data = np.arange(4 * 4 * 8, dtype="float32").reshape(4, 4, 8) / 64 - 1
            with vpod.Session(executable, device) as session:
                return [session.run("train", {"x": data})["loss"].tolist() for _ in range(3)]

        expected = losses()
        self.assertNotEqual(expected[0], expected[2])
        for options in (dict(schedule="grouped"), dict(schedule="interleaved"), dict(recomputation="all"),
                        dict(schedule="grouped", recomputation="pipeline", off_chip_optimizer_state=True),
                        dict(schedule="grouped", off_chip_activations=True, off_chip_weights=True,
                             off_chip_accumulators=True), dict(schedule="phased")):
            self.assertEqual(losses(ipus_per_replica=2, **options), expected, options)

    def test_memory_proportions_change_plans_and_no_result(self):
        a, b = np.random.default_rng(1).normal(size=(2, 512, 512)).astype(np.float32)
        graph = vpod.Graph()
        graph.output("y", graph.input("a", a.shape) @ graph.input("b", b.shape))
        results, hashes = [], set()
        for proportions in ([], [None], [0.05], [0.6]):
            executable = vpod.compile(graph, [vpod.Program("run")], memory_proportions=proportions)
            hashes.add(executable.hash)
            with vpod.Session(executable) as session:
                results.append(session.run("run", {"a": a, "b": b})["y"])
            np.testing.assert_array_equal(results[-1], results[0])
        self.assertEqual(len(hashes), 3)

    def test_what_does_not_fit_says_what_to_try(self):
        graph = vpod.Graph()
        x = graph.input("x", [1 << 17, 512])
        for block in range(8):
            with graph.scope(f"block{block}"):
                x = vpod.relu(x @ graph.variable("l2.weight", vpod.filled([512, 512], 0.01)))
        loss = x.mean()
        graph.output("loss", loss)
        train = vpod.Program("train", loss=loss, optimizer=vpod.Sgd())
        with self.assertRaises(vpod.Error) as raised:
            vpod.compile(graph, [train])
        message = str(raised.exception)
        self.assertRegex(message, r"recomputation \(recomputation=\"standard\"\): (fits|not alone)")
        self.assertRegex(message, r"off the chip \(off_chip_activations=True\): (fits|not alone)")
        self.assertRegex(message, r"more gradient accumulation \(shapes of inputs, accumulation\): not tried")
        self.assertNotIn("CompileOptions", message)
        arguments = set(re.findall(r"(\w+)=", message)) | {"memory_proportions", "tensor_shards"}
        self.assertLessEqual(arguments, set(re.findall(r"(\w+): ", vpod.compile.__doc__)))

    def test_variables_are_named_with_their_scope(self):
        graph = vpod.Graph()
        net = vpod.nn.Builder(graph)
        x = graph.input("x", [2, 4])
        with graph.scope("block2"):
            with graph.scope("inner"):
                x = x + graph.variable("shift", np.zeros(4))
            x = net.linear("l2", x, 4)
            x = net.into("head").linear("fc", x, 4)
        with graph.scope("block3"):
            x = net.linear("l2", x, 4)
        graph.output("y", x)
        layers = ("block2.l2", "block2.head.fc", "block3.l2")
        names = {f"{layer}.{name}" for layer in layers for name in ("weight", "bias")}
        self.assertEqual(set(vpod.compile(graph, [vpod.Program("run")]).variables), names | {"block2.inner.shift"})

    def test_tensor_sharding_changes_no_result(self):
        graph = vpod.Graph()
        x = graph.input("x", [4, 32])
        y = vpod.relu(x @ graph.variable("w", vpod.uniform([32, 256], 0.3, seed=1)))
        loss = (y * y).mean()
        graph.output("loss", loss)
        program = vpod.Program("train", loss=loss, optimizer=vpod.Adam(0.01))

        def trained(shards):
            executable = vpod.compile(graph, [program], total_replicas=4, tensor_shards=shards)
            data = np.arange(4 * 4 * 32, dtype="float32").reshape(4, 4, 32) / 256 - 1
            with vpod.Session(executable, vpod.ipu_model(4)) as session:
                losses = [session.run("train", {"x": data})["loss"].tolist() for _ in range(3)]
                return losses, session.read("w").tolist(), session.read("Accl1___w", replica=3).tolist()

        self.assertEqual(trained(4), trained(1))
        with self.assertRaisesRegex(ValueError, "tensor_shards is 3, must divide the 4 replicas of the job"):
            vpod.compile(graph, [program], total_replicas=4, tensor_shards=3)

    def test_running(self):
        session, data = self.open(), self.data()
        counts = vpod.Graph()
        counts.output("y", counts.input("n", [1], "int32"))
        counting = vpod.Session(vpod.compile(counts, [vpod.Program("count")]), vpod.ipu_model())
        device, small = vpod.ipu_model(), vpod.ipu_model()
        executable, wide = (vpod.compile(self.graph, [vpod.Program("infer")], ipus_per_replica=n) for n in (1, 2))
        vpod.Session(executable, device).close()
        training = [vpod.Program("train", loss=self.loss, optimizer=vpod.Sgd(0.1))]
        alone, four = (vpod.compile(self.graph, training, total_replicas=n) for n in (1, 4))
        vpod.Session(executable, vpod.ipu_model(4)).close()
        calls = [
            (lambda: vpod.Session(alone, vpod.ipu_model(4)), ValueError,
             "is for 1 replica, and the job has 4: compile it with total_replicas=4"),
            (lambda: vpod.Session(four, vpod.ipu_model(2)), ValueError,
             "is for 4 replicas, and the job has 2: compile it with total_replicas=2"),
            (lambda: session.run("nope", data), ValueError, "no program 'nope'; there are train, infer"),
            (lambda: session.run("train"), ValueError, "input 't' is missing; there are: 't', 'x'"),
            (lambda: session.run("train", {**data, "q": 1}), ValueError, "no input 'q'; there are: 't', 'x'"),
            (lambda: session.run("train", {**data, "x": [1]}), ValueError, r"takes \[8,3\], and not \[1\]"),
            (lambda: session.run("train", {**data, "x": "abc"}), TypeError, "'x' needs an array of numbers"),
            (lambda: session.run("train", {**data, "t": None}), TypeError, "'t' needs an array of numbers"),
            (lambda: counting.run("count", {"n": np.full(1, 2**64 - 1, np.uint64)}), ValueError,
             "value 18446744073709551615 is outside the range of int32"),
            (lambda: counting.run("count", {"n": [2**31]}), ValueError, "value 2147483648 at index 0 is outside"),
            (lambda: counting.run("count", {"n": np.float32([1])}), ValueError,
             r"stream 'n' takes int32, and not float32: array.astype\('int32'\) makes it that"),
            (lambda: counting.run("count", {"n": [0.5]}), ValueError, "stream 'n' takes int32, and not float64"),
            (lambda: session.run("train", 5), TypeError, "inputs is <class 'int'>, must be a dict$"),
            (lambda: session.run(), TypeError, r"run\(\): missing a required argument: 'program'$"),
            (lambda: session.read("nope"), ValueError, "no variable 'nope'; there are w, b"),
            (lambda: session.read("w", 1), ValueError, "replica is 1, must be 0 to 0$"),
            (lambda: session.write("w", [1]), ValueError, r"'w' takes \[3,1\], and not \[1\]"),
            (lambda: session.write("w", "abc"), TypeError, "'w' needs"),
            (lambda: session.save("/nonexistent/a.npz"), vpod.Error, "/nonexistent"),
            (lambda: session.load("/nonexistent/a.npz"), ValueError, "/nonexistent/a.npz: No such file"),
            (lambda: session.load("/dev/null/a.npz"), vpod.Error, "/dev/null/a.npz: Not a directory"),
            (lambda: session.set_learning_rate(0.1, 3), ValueError, "group 3"),
            (lambda: session.set_learning_rate(float("inf")), ValueError, "learning rate is inf, must be 0 or more"),
            (lambda: session.set_learning_rate(float("nan")), ValueError, "learning rate is nan"),
            (lambda: session.set_hyper_parameters(vpod.Sgd(-1)), ValueError, "learning rate is -1"),
            (lambda: session.save("/dev/null"), vpod.Error, "/dev/null is not a file"),
            (lambda: session.load("/dev/zero"), vpod.Error, "/dev/zero is not a file"),
            (lambda: session.set_hyper_parameters(vpod.Adam()), ValueError, "compiled for"),
            (lambda: vpod.Session(executable, device), vpod.Error, "the device was given to a session before; open"),
            (lambda: vpod.Session(wide, small), ValueError,
             "the executable has 2 IPUs per replica, the device 1: open it with ipus_per_replica=2$"),
            (lambda: vpod.Session(executable, 5), TypeError, "device is <class 'int'>, must be a vpod.Device or None$"),
            (lambda: vpod.ipu_model(replicas=0), ValueError, "replicas is 0, must be 1 to"),
            (lambda: vpod.ipu_model(compute_threads=-1), ValueError, "compute_threads is -1, must be 0 to 4096"),
            (lambda: vpod.ipu_model(replicas=-1), ValueError, "replicas is -1, must be 1 to 65536$"),
            (lambda: vpod.ipu_model(replicas=100000), ValueError, "replicas is 100000, must be 1 to 65536$"),
            (lambda: vpod.ipu_model(replicas=1025, ipus_per_replica=64), ValueError, "replicas is 1025, must be 1 to 1024"),
            (lambda: vpod.ipu_model(ipus_per_replica=65), ValueError, "ipus_per_replica is 65, must be 1 to 64$"),
            (lambda: vpod.attach(replicas=100000), ValueError, "replicas is 100000, must be 1 to 65536$"),
            (lambda: session.read("w", -1), ValueError, "replica is -1, must be 0 to 0$"),
            (lambda: session.read("w", "0"), TypeError, "replica is <class 'str'>, must be an integer$"),
            (lambda: session.set_learning_rate(0.1, -1), ValueError, "group is -1, must be 0 to 4294967295$"),
            (lambda: session.set_learning_rate("0.1"), TypeError, "rate is <class 'str'>, must be a number$"),
            (lambda: session.save(5), TypeError, "path is <class 'int'>, must be a string or an os.PathLike$"),
            (lambda: session.load(None), TypeError, "path is <class 'NoneType'>, must be a string or an os.PathLike$"),
        ]
        for call, error, message in calls:
            self.refused(call, error, message)
        session.run("train", data)
        session.close()
        session.close()
        for call in (lambda: session.run("train", data), lambda: session.read("w"), lambda: session.save("a")):
            self.refused(call, vpod.Error, "the session is closed")


class ConversionsTest(unittest.TestCase):
    """What would take a tensor for an array or a number is refused, with what to use instead."""

    def setUp(self):
        self.graph = vpod.Graph()
        self.x = self.graph.input("x", [2, 3])

    def test_functions_of_numpy(self):
        x = self.x
        calls = [
            (lambda: np.argmax(x), "numpy.argmax does not take a vpod.Tensor: use the tensor's argmax$"),
            (lambda: np.dot(x, x), "numpy.dot does not take a vpod.Tensor: use vpod.matmul$"),
            (lambda: np.dot(np.ones((3, 3)), x), "use vpod.matmul$"),
            (lambda: np.stack([x, x]), "numpy.stack does not take a vpod.Tensor: use vpod.concat$"),
            (lambda: np.concatenate([x, x]), "use vpod.concat$"),
            (lambda: np.sum(x), "use the tensor's sum$"),
            (lambda: np.max(x), "use the tensor's max$"),
            (lambda: np.shape(x), "use the tensor's shape$"),
            (lambda: np.exp(x), "numpy.exp does not take a vpod.Tensor: use vpod.exp$"),
            (lambda: np.arctan(x), "use vpod.atan$"),
            (lambda: np.maximum(x, 1), "use vpod.maximum$"),
            (lambda: np.add(x, x), r"use the operator \+$"),
            (lambda: np.add.reduce(x), r"use the operator \+$"),
            (lambda: np.add(np.float32(1), x, dtype="float64"), r"use the operator \+$"),
            (lambda: np.where(x > 0, x, 0), "use vpod.select$"),
            (lambda: np.cov(x), "numpy.cov does not take a vpod.Tensor: use functions of vpod and methods of the tensor$"),
            (lambda: np.array(x), "a tensor has values only when its program runs; session.run gives an output as an array"),
            (lambda: np.asarray([x, x]), "session.run gives an output as an array"),
            (lambda: np.ones((2, 3)) + x, "an array is not an operand: make it a variable, a buffer or an input"),
            (lambda: np.ones((2, 3)) * x, "an array is not an operand"),
            (lambda: np.ones((2, 3)) < x, "an array is not an operand"),
            (lambda: np.ones((2, 2)) @ x, "numpy.matmul does not take a vpod.Tensor: use vpod.matmul$"),
        ]
        for call, message in calls:
            with self.subTest(message):
                self.assertRaisesRegex(TypeError, message, call)

    def test_numbers_of_numpy_are_operands(self):
        x = np.float32([[1, 2, 3]])
        for two in (np.float32(2), np.float64(2), np.int64(2), np.array(2.0)):
            for operation in (
                lambda t: two + t * two - two,
                lambda t: two - two * t,
                lambda t: two / t + t / two,
                lambda t: two**t + t**two,
                lambda t: two % t + t % two,
            ):
                np.testing.assert_allclose(evaluate(operation, [x]), operation(x), rtol=1e-6)
            for comparison in (lambda t: two < t, lambda t: two >= t, lambda t: two == t, lambda t: two != t):
                np.testing.assert_array_equal(evaluate(comparison, [x]), comparison(x))

    def test_conversions_of_python(self):
        x = self.x
        calls = [
            (lambda: float(x), r"a tensor has values only when its program runs; float\(\) takes what session.run gives"),
            (lambda: int(x), r"a tensor has values only when its program runs; int\(\) takes"),
            (lambda: bool(x), "a tensor has values only when its program runs; vpod.select chooses"),
            (lambda: f"{x:.3f}", "a tensor has values only when its program runs, so that '.3f' formats none"),
            (lambda: len(x), r"a tensor has no len\(\): use its shape\[0\]"),
            (lambda: list(x), r"a tensor is not iterated over: t\[i\] is its row i, of shape\[0\] rows"),
            (lambda: vpod.Sgd(x), "learning_rate is <class 'vpod.Tensor'>, must be a number$"),
            (lambda: self.graph.input("y", [x]), r"shape\[0\] is <class 'vpod.Tensor'>, must be an integer$"),
        ]
        for call, message in calls:
            with self.subTest(message):
                self.assertRaisesRegex(TypeError, message, call)
        self.assertEqual(f"{x}", "vpod.Tensor float32[2,3]")


class AtenTest(unittest.TestCase):
    def test_operators_of_pytorch(self):
        graph = vpod.Graph()
        x = graph.input("x", [2, 3])
        (scaled,) = graph.aten("add.Tensor", x, x, 2)
        values, places = graph.aten("max.dim", scaled, -1, False)
        (joined,) = graph.aten("cat.default", [values, values])
        self.assertEqual((joined.shape, places.dtype), ((4,), np.int32))
        graph.output("y", joined)
        with vpod.Session(vpod.compile(graph, [vpod.Program("infer")])) as session:
            y = session.run("infer", {"x": np.arange(6).reshape(2, 3)})["y"]
        np.testing.assert_array_equal(y, [6, 15, 6, 15])
        self.assertEqual(vpod.aten_operators()["relu.default"], "tensor")

    def test_outputs_that_a_mask_leaves_out(self):
        graph = vpod.Graph()
        dy, x, w = graph.input("dy", [1, 1, 4]), graph.input("x", [1, 1, 4]), graph.input("w", [1, 1, 1])
        rest = ([1], [1], [0], [1], False, [0], 1, [False, True, False])
        self.assertEqual([g is None for g in graph.aten("convolution_backward.default", dy, x, w, *rest)], [True, False, True])

    def test_wrong_calls(self):
        graph, other = vpod.Graph(), vpod.Graph()
        x = graph.input("x", [2, 3])
        calls = [
            (lambda: graph.aten("nope.default", x), vpod.Error, "aten::nope.default is not among"),
            (lambda: graph.aten("nonzero.default", x), vpod.Error, "depends on its elements"),
            (lambda: graph.aten("relu.default"), ValueError, "needs argument 0"),
            (lambda: graph.aten("relu.default", x, 1), ValueError, "has 2 arguments, must have at most 1"),
            (lambda: graph.aten("relu.default", "x"), ValueError, "argument 0 does not fit"),
            (lambda: graph.aten("relu.default", other.input("x", [2])), ValueError, "another graph"),
            (lambda: graph.aten("relu.default", np.zeros(3)), TypeError, "an argument is"),
            (lambda: graph.aten("cat.default", [x, 1]), TypeError, "a list must have numbers, or tensors"),
            (lambda: graph.aten("cat.default", [x, "x"]), TypeError, "a list must have numbers, or tensors"),
            (lambda: graph.aten("cat.default", []), ValueError, "needs at least one tensor"),
            (lambda: graph.aten("select.int", x, 0, 2), ValueError, "index 2 must be -2 to 1"),
            (lambda: graph.aten("select.int", x, 0, 2**70), ValueError, "argument 2 is 1180591620717411303424, must be"),
            (lambda: graph.aten("repeat.default", x, [1, 2**70]), ValueError, "argument 1 is 1180591620717411303424"),
            (lambda: graph.aten("mm.default", x, x), ValueError, "mm.default"),
            (lambda: graph.aten(), TypeError, "aten"),
        ]
        for call, error, message in calls:
            with self.assertRaisesRegex(error, message):
                call()
        self.assertEqual(graph.aten("t.default", x)[0].shape, (3, 2))


class HelpTest(unittest.TestCase):
    def test_defaults_are_written_as_people_write_them(self):
        for optimizer in (vpod.Sgd, vpod.Adam, vpod.RmsProp, vpod.Lamb, vpod.Lars):
            self.assertNotRegex(optimizer.__init__.__doc__, r"\d{6}")
        self.assertIn("learning_rate: float = 0.01,", vpod.Sgd.__init__.__doc__)
        self.assertIn("epsilon: float = 1e-05", vpod.nn.Builder.layer_norm.__doc__)


    def test_classes_have_the_names_that_programs_know(self):
        for known in (vpod.Tensor, vpod.Graph, vpod.Error):
            self.assertEqual(known.__module__, "vpod")
        self.assertEqual(vpod.nn.Builder.__module__, "vpod.nn")
        for text in (vpod.concat.__doc__, vpod.Session.__init__.__doc__, vpod.nn.Builder.linear.__doc__):
            self.assertIn("vpod.", text)
            self.assertNotIn("_vpod", text)


class StubsTest(unittest.TestCase):
    def test_stubs_have_the_names_of_the_module(self):
        directory = pathlib.Path(vpod.__file__).parent
        for module, file in ((vpod._vpod, "__init__.pyi"), (vpod.nn, "nn.pyi")):
            stubs = {}
            for node in ast.parse((directory / file).read_text()).body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    members = node.body if isinstance(node, ast.ClassDef) else []
                    stubs[node.name] = {each.name for each in members if isinstance(each, ast.FunctionDef)}
            public = {name for name in vars(module) if not name.startswith("_")} - {"nn"}
            self.assertEqual(set(stubs), public)
            for name, members in stubs.items():
                ours = {m for m in vars(getattr(module, name)) if not m.startswith("_")} if members else set()
                self.assertEqual({m for m in members if not m.startswith("_")}, ours, name)


if __name__ == "__main__":
    unittest.main()
