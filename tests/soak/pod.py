"""A POD of one process per IPU-Machine, with its own state directory, whose daemons can be ended
and started again."""

import json
import os
import re
import resource
import signal
import socket
import subprocess

from processes import Command, processes_of, wait_for_end, within

START_LIMIT_S = 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """vipu-server or one vipu-agent. `generation` counts its lives."""

    def __init__(self, pod, name):
        self.pod, self.name = pod, name
        self.pid_file, self.log = f"{pod.home}/{name}.pid", f"{pod.home}/{name}.log"
        with open(self.pid_file) as file:
            self.pid = int(file.read())
        with open(f"/proc/{self.pid}/cmdline") as file:
            self.words = file.read().split("\0")[:-1]
        self.generation = 1
        self.child = None

    def alive(self):
        if self.child is not None:
            return self.child.poll() is None
        return not wait_for_end(self.pid, 0)

    def end(self, number):
        """Ends it by a signal; False when it does not end."""
        os.kill(self.pid, number)
        ended = wait_for_end(self.pid, START_LIMIT_S)
        if not ended:
            os.kill(self.pid, signal.SIGKILL)
        if self.child is not None:
            self.child.wait()
        return ended

    def start(self):
        """Starts it again with the words it was started with; False when it does not serve."""
        before = os.path.getsize(self.log)
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                self.words, env=self.pod.environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True)
        self.pid = self.child.pid
        with open(self.pid_file, "w") as file:
            file.write(f"{self.pid}\n")
        self.generation += 1
        serves = "serving users on" if self.name == "vipu-server" else "machines of type"
        return within(START_LIMIT_S, lambda: serves in self.log_since(before) or not self.alive(),
                      0.02) and self.alive()

    def log_since(self, offset):
        with open(self.log, errors="replace") as file:
            file.seek(offset)
            return file.read()


class Pod:
    def __init__(self, programs, directory, ipus):
        self.directory, self.home = directory, f"{directory}/pod"
        self.ipus, self.port = ipus, free_port()
        self.bin, self.temporary = f"{directory}/bin", f"{directory}/tmp"
        for path in (self.bin, self.temporary):
            os.mkdir(path)
        for folder in programs:
            self.link_programs(folder)
        # A program of ours that aborts on purpose leaves no file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.environment = {
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": directory,
            "TMPDIR": self.temporary,
            "VPOD_HOME": self.home,
            "VIPU_CLI_API_HOST": "127.0.0.1",
            "VIPU_CLI_API_PORT": str(self.port),
            "IPUOF_CONFIG_DIR": f"{self.home}/ipuof.conf.d",
            "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        self.server, self.agents = None, []

    def link_programs(self, folder):
        for place, _, names in os.walk(folder):
            for name in names:
                path = os.path.realpath(os.path.join(place, name))
                link = f"{self.bin}/{name}"
                if os.access(path, os.X_OK) and os.path.isfile(path) and not os.path.exists(link):
                    os.symlink(path, link)

    def up(self):
        outcome = self.run(["vpod", "up", "--pod", str(self.ipus), "--agents", "processes",
                            "--api-port", str(self.port), "--memory-limit", "4096"], 120)
        if outcome.code != 0:
            raise SystemExit(f"soak: error: the POD did not come up: {outcome.err.strip()}")
        self.server = Daemon(self, "vipu-server")
        self.agents = [Daemon(self, "vipu-agent" + (f".{n}" if n else ""))
                       for n in range(self.ipus // 4)]

    def down(self):
        """Returns what is wrong."""
        outcome = self.run(["vpod", "down"], 60)
        for daemon in self.daemons():
            if daemon.child is not None:
                daemon.child.wait()
        wrong = [f"vpod down: {outcome}"] if outcome.code != 0 else []
        wrong += [f"left behind after vpod down: {words}"
                  for words in processes_of(self.home).values()]
        return wrong

    def daemons(self):
        return [daemon for daemon in [self.server, *self.agents] if daemon is not None]

    def start(self, words):
        return Command(words, self.environment, self.directory)

    def run(self, words, limit=60):
        return self.start(words).wait(limit)

    def json(self, words):
        """Output of a command that prints JSON, or None."""
        try:
            return json.loads(self.run(words).out)
        except json.JSONDecodeError:
            return None

    def metrics_addresses(self):
        """Where the controller and each machine are scraped; asked once, while all is well."""
        found = re.findall(r"http://\S+", self.run(["vpod", "status"]).out)
        for number in range(len(self.agents)):
            found += re.findall(r"http://\S+", self.run(
                ["vipu-admin", "get", "agent", f"ag{number}"]).out)
        return found
