"""Actors at work in the POD, each in a thread of its own. Their acts in an hour follow from the
seed, the hour and their name alone; how they end may depend on what the others do."""

import json
import random
import re
import signal
import time
import urllib.error
import urllib.request

from records import is_clear_end, is_refusal, losses_of
from processes import within

LIMIT_S = 90  # of a command; one that takes longer hangs
MAX_RUNS = 12

# (instances, replicas, IPUs of a replica)
LAYOUTS_OF_4 = [(1, 1, 1), (1, 4, 1), (2, 4, 1), (4, 4, 1), (1, 2, 1), (2, 2, 1), (1, 2, 2),
                (2, 2, 2), (1, 1, 2), (1, 1, 4)]
LAYOUTS_OF_8 = [(1, 8, 1), (2, 8, 1), (4, 8, 1), (8, 8, 1), (1, 4, 2), (2, 4, 2), (4, 4, 2),
                (1, 2, 4), (2, 2, 4), (1, 1, 8)]


def job(layout, runs, *options, partition=None, in_step=False, words=()):
    instances, replicas, ipus = layout
    command = ["poprun", *options]
    if partition is not None:
        command += ["--vipu-partition", partition]
    command += ["--num-instances", str(instances), "--num-replicas", str(replicas),
                "--ipus-per-replica", str(ipus), "replica_job", "--runs", str(runs),
                "--ipus", str(ipus), *words]
    return command + ["--in-step"] if in_step else command


class Actor:
    """`needs` names the daemons whose restart may spoil what this actor does."""

    def __init__(self, name, pod, records, needs):
        self.name, self.pod, self.records, self.needs = name, pod, records, set(needs)
        self.where, self.disturbed, self.was_disturbed = "", set(), False

    def work(self, hour, seed, disturbed):
        """`disturbed` are the daemons that will suffer in this hour."""
        random_source = random.Random(f"{seed}/{hour}/{self.name}")
        self.disturbed = disturbed & self.needs
        self.was_disturbed = self.was_disturbed or bool(self.disturbed)
        for number, (text, operation) in enumerate(self.plan(random_source)):
            self.where = f"hour {hour}, {self.name} {number}: {text}"
            self.records.note(self.where)
            try:
                operation()
            except Exception as error:  # of this script: the day goes on, the run fails
                self.wrong(repr(error))

    def plan(self, random_source):
        """List of (text, what to do)."""
        raise NotImplementedError

    def wrong(self, what):
        self.records.fail(self.where, what)

    def run(self, words):
        outcome = self.pod.run(words, LIMIT_S)
        if outcome.code is None:
            self.wrong(f"hangs\n{outcome.out}{outcome.err}")
        return outcome


class Jobs(Actor):
    """Runs jobs one after the other; losses are those of the undisturbed job, to the digit."""

    def __init__(self, name, pod, records, needs, partition, layouts, jobs):
        super().__init__(name, pod, records, needs)
        self.partition, self.layouts, self.jobs = partition, layouts, jobs

    def plan(self, random_source):
        for _ in range(self.jobs):
            layout = random_source.choice(self.layouts)
            runs = random_source.randint(1, MAX_RUNS)
            in_step = random_source.random() < 0.3
            yield (f"job of {layout}, {runs} runs{', in step' if in_step else ''}",
                   lambda: self.whole_job(layout, runs, in_step))

    def whole_job(self, layout, runs, in_step):
        outcome = self.run(job(layout, runs, partition=self.partition, in_step=in_step))
        self.check_losses(layout, runs, outcome)
        if outcome.code == 0:
            return
        if not self.disturbed or not is_clear_end(outcome):
            self.wrong(f"ended with {outcome.code}\n{outcome.out}{outcome.err}")
        elif self.disturbed == {"vipu-server"} and losses_of(outcome.out):
            self.wrong(f"does not outlive the controller\n{outcome.out}{outcome.err}")

    def check_losses(self, layout, runs, outcome):
        seen, expected = losses_of(outcome.out), self.records.losses[layout[1:]][:runs]
        if seen != (expected if outcome.code == 0 else expected[:len(seen)]):
            self.wrong(f"losses {seen}, undisturbed {expected}")


class RoughJobs(Jobs):
    """Jobs of which some go wrong by themselves, and whose users lose patience."""

    def plan(self, random_source):
        for _ in range(self.jobs):
            layout = random_source.choice(self.layouts)
            instance = random_source.randrange(layout[0])
            what = random_source.choice(["whole", "kill", "exit", "throw", "interrupted", "killed"])
            runs, after_s = random_source.randint(1, MAX_RUNS), random_source.uniform(0.05, 0.6)
            if what == "whole":
                yield f"job of {layout}", lambda: self.whole_job(layout, runs, False)
            elif what in ("interrupted", "killed"):
                number = signal.SIGINT if what == "interrupted" else signal.SIGKILL
                yield f"job of {layout}, {what}", lambda: self.cut_job(layout, number, after_s)
            else:
                yield (f"job of {layout}, {what} in instance {instance}",
                       lambda: self.failing_job(layout, what, instance))

    def failing_job(self, layout, fault, instance):
        words = ["--fault", fault, "--instance", str(instance), "--at-run", "2"]
        outcome = self.run(job(layout, MAX_RUNS, partition=self.partition, words=words))
        self.check_losses(layout, MAX_RUNS, outcome)
        expected = {"kill": 137, "exit": 3, "throw": 134}[fault]
        named = f"instance {instance} (pid " in outcome.err
        if outcome.code == expected and named:
            return
        if not self.disturbed or not is_clear_end(outcome):
            self.wrong(f"ended with {outcome.code}\n{outcome.out}{outcome.err}")

    def cut_job(self, layout, number, after_s):
        words = ["--pause-ms", "5"]
        command = self.pod.start(job(layout, 100000, partition=self.partition, words=words))
        time.sleep(after_s)
        outcome = command.end(number, LIMIT_S)
        if number == signal.SIGKILL and not within(LIMIT_S, self.nobody_holds):
            self.wrong("its instances outlive it")
        if outcome.code is None:
            self.wrong(f"poprun does not end on signal {number}\n{outcome.out}{outcome.err}")
        elif outcome.code == 0:
            self.wrong(f"claims success\n{outcome.out}{outcome.err}")
        elif (outcome.code != -number and not is_clear_end(outcome)
              and not (number == signal.SIGINT and outcome.code == 130)):
            self.wrong(f"ended with {outcome.code}\n{outcome.out}{outcome.err}")


    def nobody_holds(self):
        """No other job is on the partition."""
        shown = self.pod.json(["gc-monitor", "--all-partitions", "-j"])
        return shown is not None and not any(
            "PID" in ipu for card in shown["cards"] if card["Partition"] == self.partition
            for ipu in card["ipus"])


class OwnPartitionJobs(Jobs):
    """Jobs for which poprun makes a partition and removes it."""

    def plan(self, random_source):
        for number in range(self.jobs):
            layout = random_source.choice(self.layouts)
            runs = random_source.randint(1, MAX_RUNS)
            partition = f"{self.name}-{number}"
            yield (f"job of {layout} in a partition of its own",
                   lambda: self.own_job(layout, runs, partition))

    def own_job(self, layout, runs, partition):
        if self.disturbed:
            self.records.uncertain.add(partition)  # until the hour ends
        outcome = self.run(job(layout, runs, "--vipu-allocation", f"c{self.pod.ipus}",
                               partition=partition))
        self.check_losses(layout, runs, outcome)
        no_room = "free" in outcome.err or "exceeds" in outcome.err
        if outcome.code != 0 and not (is_clear_end(outcome) and (self.disturbed or no_room)):
            self.wrong(f"ended with {outcome.code}\n{outcome.out}{outcome.err}")


class Administrator(Actor):
    """Creates, changes and removes partitions, users and an allocation of its own; some commands
    are cut off."""

    def __init__(self, name, pod, records, needs, agents, commands):
        super().__init__(name, pod, records, needs)
        self.agents, self.commands = agents, commands

    def plan(self, random_source):
        partitions = [f"{self.name}-p{k}" for k in range(4)]
        allocation, user = f"{self.name}-a", f"{self.name}-u{random_source.randrange(3)}"
        for _ in range(self.commands):
            size = str(2 ** random_source.randrange(3))
            kind = random_source.choice([["--reconfigurable"], ["--relocatable"], ["--shared"], []])
            place = random_source.choice([allocation, f"c{self.pod.ipus}"])
            partition = random_source.choice(partitions)
            words = random_source.choices([
                ["create", "partition", partition, "--size", size, "--allocation", place, *kind],
                ["update", "partition", partition, "--size", size],
                ["reset", "partition", partition],
                ["remove", "partition", partition],
                ["create", "user", user],
                ["update", "user", user, "--allocations", f"c{self.pod.ipus}"],
                ["remove", "user", user],
                ["create", "allocation", allocation, "--cluster", f"c{self.pod.ipus}", "--agents",
                 ",".join(self.agents)],
                ["remove", "allocation", allocation],
            ], weights=[6, 2, 2, 4, 1, 1, 1, 1, 1])[0]
            cut_s = random_source.uniform(0, 0.05) if random_source.random() < 0.15 else None
            yield (" ".join(words) + (" (cut)" if cut_s is not None else ""),
                   lambda: self.command(words, cut_s))

    def command(self, words, cut_s):
        words = ["vipu-admin", "--timeout", "40", *words]
        _, _, _, verb, noun, name = words[:6]
        if cut_s is not None:
            self.records.uncertain.add(name)
            command = self.pod.start(words)
            time.sleep(cut_s)
            command.end(signal.SIGKILL)
            return
        outcome = self.run(words)
        certain = name not in self.records.uncertain
        if outcome.code == 0:
            self.acknowledge(verb, noun, name, words)
        elif not is_refusal(outcome):
            self.wrong(f"ended with {outcome.code}\n{outcome.out}{outcome.err}")
        elif self.disturbed or "in state" in outcome.err:
            self.records.uncertain.add(name)
        elif certain and (f"{name} does not exist" in outcome.err and self.known(noun, name)
                          or f"{name} already exists" in outcome.err
                          and not self.known(noun, name)):
            self.wrong(f"contradicts what was acknowledged: {outcome.err}")

    def known(self, noun, name):
        return name in {"partition": self.records.partitions, "user": self.records.users,
                        "allocation": self.records.allocations}[noun]

    def acknowledge(self, verb, noun, name, words):
        records = self.records
        if noun == "partition":
            if verb == "remove":
                records.partitions.pop(name, None)
            elif verb in ("create", "update"):
                records.partitions[name] = int(words[words.index("--size") + 1])
            return
        known = records.users if noun == "user" else records.allocations
        known.discard(name) if verb == "remove" else known.add(name)


class Monitors(Actor):
    """Looks at everything, and keeps watches that run for hours."""

    LOOKS = [
        ["gc-monitor", "--all-partitions", "-j"], ["gc-monitor", "--all-partitions"],
        ["gc-monitor", "--all-partitions", "--csv"],
        ["gc-info", "--list-devices", "--all-partitions"], ["gc-inventory", "-j"],
        ["vipu", "list", "partitions"], ["vipu", "list", "partitions", "--showjson"],
        ["vipu", "list", "allocations"], ["vipu-admin", "list", "agents", "--showjson"],
        ["vipu-admin", "list", "clusters"], ["vipu-admin", "list", "users"],
        ["vipu-admin", "list", "ipu-attrs"], ["vipu-admin", "list", "events", "--limit", "50"],
        ["vpod", "status"],
    ]
    WATCHES = [["gc-monitor", "--all-partitions", "--watch", "0.5"],
               ["vipu-admin", "list", "events", "--follow"]]

    def __init__(self, name, pod, records, needs, looks):
        super().__init__(name, pod, records, needs)
        self.looks = looks
        self.addresses = pod.metrics_addresses()
        self.steady = f"{pod.home}/ipuof.conf.d/steady.conf"
        self.watches = {}

    def plan(self, random_source):
        for _ in range(self.looks):
            what = random_source.choice(["look"] * 4 + ["scrape"] * 2 + ["watch"])
            if what == "look":
                words = random_source.choice(self.LOOKS)
                yield " ".join(words), lambda: self.look(words)
            elif what == "scrape":
                yield "scrape", self.scrape
            else:
                number = random_source.randrange(len(self.WATCHES))
                end = random_source.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
                yield f"watch {number}, end {end.name}", lambda: self.change_watch(number, end)

    def look(self, words):
        outcome = self.run(["env", f"IPUOF_CONFIG_PATH={self.steady}", *words])
        if outcome.code == 0:
            if words[-1] in ("-j", "--showjson"):
                json.loads(outcome.out)
        elif not (self.disturbed and is_refusal(outcome) or words[0] == "vpod" and self.disturbed):
            self.wrong(f"ended with {outcome.code}\n{outcome.out}{outcome.err}")

    def scrape(self):
        for address in self.addresses:
            try:
                with urllib.request.urlopen(address, timeout=20) as reply:
                    text = reply.read().decode()
                if not re.search(r"^# TYPE ", text, re.MULTILINE):
                    self.wrong(f"{address}: no metrics\n{text}")
            except (urllib.error.URLError, OSError) as error:
                if not self.disturbed:
                    self.wrong(f"{address}: {error}")

    def change_watch(self, number, end):
        """Ends the watch that runs, or starts one that is left running."""
        watch = self.watches.pop(number, None)
        if watch is None:
            self.watches[number] = self.pod.start(self.WATCHES[number])
            return
        by_itself = not watch.running()
        outcome = watch.end(end)
        if outcome.code is None:
            self.wrong(f"{watch.words} does not end")
        elif by_itself and not (self.was_disturbed and is_refusal(outcome)):
            self.wrong(f"{watch.words} ended by itself with {outcome.code}\n{outcome.err}")

    def running(self):
        return {watch.process.pid for watch in self.watches.values() if watch.running()}

    def end(self):
        for watch in self.watches.values():
            watch.end(signal.SIGTERM)
