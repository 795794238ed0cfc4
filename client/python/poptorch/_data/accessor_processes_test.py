"""Tests that nothing is left of an AsynchronousDataAccessor, however its processes end."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

from poptorch._data.ring import Event

from loader_testing import PATIENCE, wait_until

_MARK = "POPTORCH_TEST_MARK"


class Program:
    """A program of accessor_programs with all processes that it starts."""

    def __init__(self, test, name, file="accessor_programs.py"):
        self._mark = uuid.uuid4().hex
        self.directory = tempfile.TemporaryDirectory()
        environment = {**os.environ, _MARK: self._mark, "TMPDIR": self.directory.name}
        self.process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).parents[1] / "_testing" / file), name],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        test.addCleanup(self._kill)

    def _kill(self):
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.communicate()
        self.directory.cleanup()

    def wait_until_ready(self):
        """The words behind "ready"."""
        for line in self.process.stdout:
            if line.startswith("ready"):
                return line.split()[1:]
        raise AssertionError(self.process.stderr.read())

    def processes(self):
        """The processes of this program that run, by the mark in their environment."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

    def ends_without_traces(self, test, directories=True):
        """Waits until all processes ended; the output, once nothing is left of them.

        Whether that holds of temporary directories as well is a choice: Python's own can be left
        when all are killed that would remove them.
        """
        seen = set(self.processes())
        output, errors = self.process.communicate(timeout=PATIENCE)
        wait_until(lambda: not self.processes())
        named = [f"torch_{pid}_" for pid in seen]
        left = [
            name
            for name in os.listdir("/dev/shm")
            if name.startswith("poptorch") or any(part in name for part in named)
        ]
        test.assertEqual(left, [])
        if directories:
            test.assertEqual(os.listdir(self.directory.name), [])
        return output, errors


def _state(process):
    """The letter of a process's state, such as "T" for stopped."""
    return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


class EventTest(unittest.TestCase):
    def test_waits_on_after_signals(self):
        event = Event.create()
        self.addCleanup(os.close, event.descriptor)
        handled = []

        def handle(*_) -> None:
            handled.append(None)
            if len(handled) == 20:
                event.set()

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, handle))
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        event.wait()
        self.assertGreaterEqual(len(handled), 20)

    def test_handler_that_raises_ends_the_wait(self):
        event = Event.create()
        self.addCleanup(os.close, event.descriptor)
        self.addCleanup(
            signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, signal.default_int_handler)
        )
        with self.assertRaises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            event.wait()


class ProcessesTest(unittest.TestCase):
    def test_killed_parent(self):
        for name in ("full_ring", "slow_dataset"):
            program = Program(self, name)
            program.wait_until_ready()
            self.assertGreater(len(program.processes()), 2)
            program.process.kill()
            program.ends_without_traces(self)

    def test_killed_parent_without_first_batch(self):
        program = Program(self, "starting")
        program.wait_until_ready()
        wait_until(lambda: len(program.processes()) >= 3)
        program.process.kill()
        program.ends_without_traces(self, directories=False)

    def test_killed_child_and_its_workers(self):
        program = Program(self, "full_ring")
        child = int(program.wait_until_ready()[0])
        before = set(program.processes())
        os.kill(child, signal.SIGKILL)
        # The parent, the fork server and the resource tracker stay; the two workers end.
        wait_until(lambda: len(program.processes()) == len(before) - 3)
        program.process.kill()
        program.ends_without_traces(self, directories=False)

    def test_parent_and_child_killed_at_once(self):
        program = Program(self, "full_ring")
        child = int(program.wait_until_ready()[0])
        program.process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        program.ends_without_traces(self, directories=False)

    def test_terminated_parent(self):
        program = Program(self, "full_ring")
        program.wait_until_ready()
        program.process.terminate()
        program.ends_without_traces(self)

    def test_interrupt_of_all_processes(self):
        # As a terminal does it. The child leaves it to the parent, which goes on.
        program = Program(self, "interrupted")
        program.wait_until_ready()
        os.killpg(program.process.pid, signal.SIGINT)
        output, errors = program.ends_without_traces(self)
        self.assertEqual(output.splitlines()[-2:], [str(list(range(4, 40, 4))), "10"])
        self.assertEqual(errors, "")

    def test_stop_of_all_processes(self):
        # As a terminal does it. Workers that stop send the child a signal that torch handles.
        program = Program(self, "stopped")
        program.wait_until_ready()
        os.killpg(program.process.pid, signal.SIGSTOP)
        wait_until(lambda: all(_state(process) == "T" for process in program.processes()))
        os.killpg(program.process.pid, signal.SIGCONT)
        output, errors = program.ends_without_traces(self)
        self.assertEqual(output.splitlines()[-2:], [str(list(range(4, 40, 4))), "10"])
        self.assertEqual(errors, "")

    def test_interrupt_of_the_child_then_the_parent(self):
        program = Program(self, "interrupted")
        child = int(program.wait_until_ready()[0])
        os.kill(child, signal.SIGINT)
        program.process.send_signal(signal.SIGINT)
        output, errors = program.ends_without_traces(self)
        self.assertEqual(output.splitlines()[-1], "10")
        self.assertEqual(errors, "")

    def test_interrupt_while_the_data_set_is_slow(self):
        for name in ("slow_dataset", "starting"):
            program = Program(self, name)
            program.wait_until_ready()
            program.process.send_signal(signal.SIGINT)
            _, errors = program.ends_without_traces(self)
            self.assertTrue(errors.strip().endswith("KeyboardInterrupt"), errors)

    def test_normal_end_in_a_loop(self):
        program = Program(self, "leaves_the_loop")
        output, errors = program.ends_without_traces(self)
        self.assertEqual((output, errors), ("[0, 1, 2, 3]\n", ""))
        self.assertEqual(program.process.returncode, 3)

    def test_fork_of_the_program(self):
        output, errors = Program(self, "in_a_forked_process").ends_without_traces(self)
        self.assertEqual((output, errors), ("9\n", ""))

    def test_error_of_the_first_element_is_printed(self):
        output, errors = Program(self, "broken_first_element").ends_without_traces(self)
        self.assertIn("failed to start (Check above for details)", output)
        self.assertIn("because of AssertionError", output)
        self.assertIn("AssertionError: element 0 is broken", errors)
        self.assertEqual(errors.count("Traceback"), 1)

    def test_missing_guard(self):
        program = Program(self, "", "unguarded_program.py")
        _, errors = program.ends_without_traces(self)
        self.assertEqual(program.process.returncode, 1)
        self.assertIn("if __name__ == '__main__':", errors)
        self.assertIn("worker thread failed to start", errors)


if __name__ == "__main__":
    unittest.main()
