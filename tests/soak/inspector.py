"""Checks what has to hold whenever nobody is at work, and whether the daemons hold more and more."""

import json
import os
from collections import Counter

from processes import holdings, processes_of, within

RECOVERY_S = 40  # until everything is well again after a restart
STRAGGLERS_S = 15  # until the processes of a killed job are gone; mpirun waits for some seconds


class Inspector:
    """`folders` have to be empty when nobody is at work."""

    def __init__(self, pod, records, folders):
        self.pod, self.records, self.folders = pod, records, folders
        self.left = set()  # files that were reported
        self.samples = {}  # by daemon name: list of (generation, hour, Holdings)

    def inspect(self, hour, watches):
        """At the end of an hour. `watches` are the pids that are meant to be there."""
        where = f"end of hour {hour}"
        self.check_daemons(where)
        self.check_processes(where, watches)
        self.check_objects(where)
        self.check_devices(where)
        self.check_files(where)
        for daemon in self.pod.daemons():
            self.samples.setdefault(daemon.name, []).append(
                (daemon.generation, hour, holdings(daemon.pid)))

    def check_daemons(self, where):
        for daemon in self.pod.daemons():
            if not daemon.alive():
                self.records.fail(where, f"{daemon.name} died: {daemon.log_since(0)[-1000:]}")

    def check_processes(self, where, watches):
        meant = watches | {daemon.pid for daemon in self.pod.daemons()}

        def strays():
            return {pid: words for pid, words in processes_of(self.pod.home).items()
                    if pid not in meant}
        if not within(STRAGGLERS_S, lambda: not strays()):
            self.records.fail(where, f"processes left behind: {strays()}")

    def check_objects(self, where):
        """Everything acknowledged is there and ACTIVE, nothing else is; no IPU is in two."""
        found = {}

        def settled():
            nonlocal found
            listed = self.pod.json(["vipu", "list", "partitions", "--showjson"])
            found = {entry["partition"]["id"]: entry for entry in listed or []}
            return listed is not None and all(entry["state"] == "PS_ACTIVE"
                                              for entry in found.values())
        if not within(RECOVERY_S, settled):
            states = {name: (entry["state"], entry["last_error"]) for name, entry in found.items()}
            self.records.fail(where, f"partitions do not become ACTIVE: {states}")
        sizes = {name: entry["partition"]["spec"]["size"] for name, entry in found.items()}
        users = {user["id"] for user in self.pod.json(
            ["vipu-admin", "list", "users", "--showjson"]) or []}
        allocations = {entry["id"] for entry in self.pod.json(
            ["vipu-admin", "list", "allocations", "--showjson"]) or []}
        self.compare(where, "partitions", self.records.partitions, sizes)
        self.compare(where, "users", dict.fromkeys(self.records.users), dict.fromkeys(users))
        allocations.discard(f"c{self.pod.ipus}")
        self.compare(where, "allocations", dict.fromkeys(self.records.allocations),
                     dict.fromkeys(allocations))
        self.records.partitions, self.records.users = sizes, users
        self.records.allocations = allocations
        self.records.uncertain.clear()
        ipus = Counter((ipu["agent_id"], ipu["pcie_id"]) for entry in found.values()
                       for ipu in entry["partition"]["spec"]["ipus"])
        if twice := [ipu for ipu, count in ipus.items() if count > 1]:
            self.records.fail(where, f"IPUs in two partitions: {twice}")
        for name, size in sizes.items():
            if len(found[name]["partition"]["spec"]["ipus"]) != size:
                self.records.fail(where, f"{name} is there in part only")

    def compare(self, where, what, acknowledged, found):
        uncertain = self.records.uncertain
        expected = {name: value for name, value in acknowledged.items() if name not in uncertain}
        seen = {name: value for name, value in found.items() if name not in uncertain}
        if expected != seen:
            self.records.fail(where, f"{what}: acknowledged {expected}, found {seen}")

    def check_devices(self, where):
        attached = []

        def free():
            nonlocal attached
            shown = self.pod.json(["gc-monitor", "--all-partitions", "-j"])
            attached = [ipu for card in (shown or {"cards": [{"ipus": [{"PID": "?"}]}]})["cards"]
                        for ipu in card["ipus"] if "PID" in ipu]
            return not attached
        if not within(RECOVERY_S, free):
            self.records.fail(where, f"attached though no job runs: {json.dumps(attached)}")
        agents = []

        def up():
            nonlocal agents
            agents = self.pod.json(["vipu-admin", "list", "agents", "--showjson"]) or []
            return agents and all(agent["status"] == "Up" for agent in agents)
        if not within(RECOVERY_S, up):
            self.records.fail(where, f"agents are not Up: {agents}")

    def check_files(self, where):
        left = [path for folder in self.folders for name in os.listdir(folder)
                if (path := f"{folder}/{name}") not in self.left]
        self.left.update(left)
        if left:
            self.records.fail(where, f"files left behind: {left}")
