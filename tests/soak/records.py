"""Records of what the day's commands have been told: which objects are acknowledged, what a job has to print,
and what went wrong."""

import re
import threading

# Never part of a clear message.
UNCLEAR = re.compile(r"terminate called|Assertion|Traceback|Segmentation|core dumped|"
                     r"killed by signal (6|11)\b|^\s*$|\bstd::|grpc_|UNKNOWN", re.MULTILINE)
REFUSAL = re.compile(r"^\w+ [\w-]+ \([\w.-]+\): failed\. \S.*\n\Z|^[\w-]+: error: \S.*\n\Z")
LOSS = re.compile(r"run (\d+) loss (\S+)")


class Records:
    """Threads: every method may be called from any."""

    def __init__(self, log):
        self.lock = threading.Lock()
        self.log_file = log
        self.wrong = []
        self.operations = 0
        self.partitions = {}  # acknowledged: size by id
        self.users, self.allocations = set(), set()
        self.uncertain = set()  # ids of commands that were cut, or failed while something was down
        self.losses = {}  # of undisturbed jobs, by (replicas, IPUs of a replica)

    def note(self, text):
        with self.lock:
            self.operations += 1
            self.log_file.write(text + "\n")
            self.log_file.flush()

    def fail(self, where, what):
        with self.lock:
            self.wrong.append(f"{where}: {what}")
            print(f"WRONG {where}: {what}", flush=True)


def losses_of(text):
    return [match[2] for match in sorted(LOSS.finditer(text), key=lambda m: int(m[1]))]


def is_refusal(outcome):
    """One line that says what, where and why; warnings may stand before it."""
    lines = outcome.err.splitlines(keepends=True)
    while lines and lines[0].startswith("warning: "):
        del lines[0]
    return (outcome.code in (1, 2) and REFUSAL.match("".join(lines)) is not None
            and not UNCLEAR.search(outcome.err.rstrip("\n")))


def is_clear_end(outcome):
    """A job that did not come to its end says so."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    return (outcome.code not in (0, None) and any("error: " in line for line in lines)
            and not any(UNCLEAR.search(line) for line in lines))
