#!/usr/bin/python3
"""The scripts `run`, `compare` and `fastest_kernels.py`, in trees whose benchmarks are stand-ins.

    scripts_test.py PROGRAM…    the programs with which `run` brings up PODs
"""
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).absolute().parent
PROGRAMS = [pathlib.Path(word).resolve() for word in sys.argv[1:]]


def module(name):
    loader = importlib.machinery.SourceFileLoader(name.removesuffix(".py"), str(HERE / name))
    loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(loaded)
    return loaded


class Tree:
    """A tree with the scripts, and in place of what is built programs that a test writes."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.benchmarks = self.root / "bazel-bin/tests/benchmarks"
        self.script("deploy/install-packages", "")
        self.script("deploy/build", "")
        self.script("path/bazel", "")
        (self.root / "tests/benchmarks").mkdir(parents=True)
        (self.root / "tests/benchmarks/models.cc").touch()
        for name in ("run", "compare"):
            shutil.copy2(HERE / name, self.root / "tests/benchmarks")
        self.temporary = self.root / "tmp"
        self.temporary.mkdir()

    def script(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/usr/bin/env bash\nset -euo pipefail\n" + textwrap.dedent(text))
        file.chmod(0o755)

    def benchmark(self, name, text):
        self.script(f"bazel-bin/tests/benchmarks/{name}", text)

    def run(self, *words, **environment):
        path = f"{self.root}/path:{os.environ['PATH']}"
        return subprocess.run([self.root / "tests/benchmarks" / words[0], *words[1:]], text=True, capture_output=True,
                              env={**os.environ, "TMPDIR": str(self.temporary), "PATH": path, **environment}, timeout=300)


class RunTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.tree = Tree(directory.name)
        (self.tree.root / "dist/bin").mkdir(parents=True)
        for program in PROGRAMS:
            shutil.copy(program, self.tree.root / "dist/bin")  # vpod looks for the daemons beside itself
        # Says what a benchmark on the POD of `run` finds, and whether another one has left its mark.
        self.tree.benchmark("ipuof", """\
            echo "ipuof finds ${mark-no mark} and $(vipu-admin list partitions | grep -c bench) partition"
            cat "$VPOD_HOME"/*.pid >>"$TMPDIR/pids"
            """)
        # As controller.cc does it.
        self.tree.benchmark("controller", """\
            export VPOD_HOME=$(mktemp -d "$TMPDIR/vpod-benchmark-XXXXXX")
            export VIPU_CLI_API_HOST=127.0.0.1 VIPU_CLI_API_PORT=$((20000 + RANDOM % 10000))
            vpod up --pod 16 --api-port "$VIPU_CLI_API_PORT" >/dev/null
            vipu-admin create partition p0 --size 4
            vpod down >/dev/null
            """)

    def check_ran(self, ended, lines):
        self.assertEqual((ended.returncode, ended.stdout.splitlines()), (0, lines), ended.stderr)
        # Nothing is left: no directory, no daemon.
        self.assertEqual([path.name for path in self.tree.temporary.iterdir()], ["pids"])
        for pid in (self.tree.temporary / "pids").read_text().split():
            self.assertFalse(os.path.exists(f"/proc/{pid}/exe"), pid)

    FINDS = "ipuof finds no mark and 1 partition"

    def test_no_benchmark_sees_what_another_one_set(self):
        self.check_ran(self.tree.run("run", "ipuof", "controller", "ipuof"),
                       [self.FINDS, "create partition (p0): success.", self.FINDS])

    def test_the_callers_pod_is_not_meant(self):
        ended = self.tree.run("run", "ipuof", "controller", VPOD_HOME="/nowhere", VPOD_ENV_HOME="/elsewhere",
                              VIPU_CLI_API_HOST="192.0.2.1", IPUOF_VIPU_API_PARTITION_ID="p1")
        self.check_ran(ended, [self.FINDS, "create partition (p0): success."])

    def test_a_benchmark_that_fails_ends_the_run_and_its_pod(self):
        self.tree.benchmark("ipuof", 'cat "$VPOD_HOME"/*.pid >>"$TMPDIR/pids"; echo "it is broken" >&2; exit 3')
        ended = self.tree.run("run", "ipuof", "controller")
        self.assertEqual((ended.returncode, ended.stdout), (3, ""))
        self.assertIn("it is broken", ended.stderr)
        ended.returncode = 0
        self.check_ran(ended, [])

    def test_unknown_benchmarks_are_named_before_anything_is_built(self):
        self.tree.script("deploy/build", "echo built")
        ended = self.tree.run("run", "ipuof", "nosuch")
        self.assertEqual((ended.returncode, ended.stdout), (2, ""))
        self.assertRegex(ended.stderr, r"^run: error: unknown benchmark 'nosuch'; there are all_reduce, all_reduce_agents, .* training\n$")


class CompareTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.before, self.after = (Tree(pathlib.Path(directory.name, name)) for name in ("before", "after"))
        for tree in (self.before, self.after):
            tree.script("dist/bin/vpod", "")
            tree.script("dist/bin/vipu-admin", "")

    def give(self, tree, gigabytes, microseconds):
        tree.benchmark("ipuof", f"""\
            echo "host-to-device stream, 64 MiB: {gigabytes} GB/s, memcpy 20.98 GB/s, ratio 0.96"
            echo "empty run: {microseconds} us, empty unary gRPC call 110.1 us, ratio 0.50"
            """)

    def test_ratios_are_of_times(self):
        self.give(self.before, 20, 100)
        self.give(self.after, 10, 90)
        ended = self.after.run("compare", str(self.before.root), "ipuof", "--rounds", "2")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stdout.splitlines(), [
            "ipuof, host-to-device stream of 64 MiB: before 20.00 GB/s, after 10.00 GB/s, ratio 2.000 (middle half 2.000 to 2.000)",
            "ipuof, empty run: before 100.00 us, after 90.00 us, ratio 0.900 (middle half 0.900 to 0.900)",
            "ipuof, empty run / empty gRPC call: before 0.50 times, after 0.50 times, ratio 1.000 (middle half 1.000 to 1.000)",
        ])

    def test_a_tree_that_fails_is_named(self):
        self.give(self.before, 20, 100)
        self.after.benchmark("ipuof", "echo 'ipuof: error: it is broken' >&2; exit 1")
        ended = self.after.run("compare", str(self.before.root), "ipuof", "--rounds", "2")
        self.assertIn("ipuof, empty run: one of the trees cannot\n", ended.stdout)
        self.assertIn(f"compare: ipuof failed in {self.after.root}: ipuof: error: it is broken\n", ended.stderr)

    def test_a_tree_that_cannot_be_built_is_an_error(self):
        self.before.script("deploy/build", "exit 1")
        ended = self.after.run("compare", str(self.before.root), "ipuof")
        self.assertEqual((ended.returncode, ended.stderr),
                         (1, "compare: error: a tree cannot be built: 'deploy/build' failed\n"))

    def test_models_take_turns(self):
        for tree, milliseconds in ((self.before, 40), (self.after, 30)):
            tree.benchmark("models", f"while read -r question; do echo {milliseconds}; done")
        ended = self.after.run("compare", str(self.before.root), "--model", "mnist", "--rounds", "2")
        self.assertEqual(ended.stdout, "mnist, batch 16, training in float32: before 40.00 ms, after 30.00 ms, ratio 0.750 "
                                       "(middle half 0.750 to 0.750)\n", ended.stderr)

    def test_every_figure_is_found_in_a_recorded_run(self):
        compare = module("compare")
        recorded = (HERE / "README.md").read_text().replace("\n    ", "\n")
        for benchmark, figures in compare.FIGURES.items():
            for name, _, pattern in figures:
                self.assertRegex(recorded, pattern, f"{benchmark}, {name}")
        shared, tcp = (compare.re.search(compare.FIGURES["all_reduce_agents"][i][2], recorded).group(1) for i in (1, 3))
        self.assertEqual((shared, tcp), ("4.452", "0.768"))


class FastestKernelsTest(unittest.TestCase):
    def choose(self, choices):
        """Each choice is a script that answers lines; the variable has it."""
        command = ["bash", "-c", 'eval "${TRIED-while read -r; do echo 50; done}"']
        return module("fastest_kernels.py").fastest("TRIED", dict(os.environ), choices, command)

    def test_the_fastest_wins(self):
        slow, fast = ("while read -r; do echo %d; done" % milliseconds for milliseconds in (60, 40))
        self.assertEqual(self.choose([None, slow, fast]), fast)
        self.assertIsNone(self.choose([None, slow]))

    def test_what_the_processor_cannot_run_is_no_choice(self):
        at_once = "kill -ILL $$"
        later = "read -r; echo 1; read -r; echo 1; kill -ILL $$"
        self.assertIsNone(self.choose([at_once, None, later]))
        with self.assertRaises(SystemExit):
            self.choose([at_once, later])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
