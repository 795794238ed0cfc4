"""Makes things go wrong in the POD: injected faults, and daemons that are ended and started again."""

import random
import signal
import time

from actors import Actor

SHIFTS = ("calm", "agents", "all")

FAULTS = [
    ["link-down", "--link", "IPU1.NLC_W_0A"],
    ["link-errors", "--link", "IPU2.NLC_E_0A", "--rate", "10"],
    ["ipu-error", "--ipu", "3", "--error", "IPUSOFTERR"],
    ["over-temperature", "--ipu", "1"],
    ["memory-parity", "--ipu", "2"],
    ["agent-hang", "--seconds", "1"],
]


class Disturber(Actor):
    """Shift "calm": faults in agents of `faulty` that are cleared within the hour. "agents":
    restarts of agents, except the `spared` first ones. "all": restarts of the controller too,
    together with agents in both orders."""

    def __init__(self, pod, records, spared, faulty):
        super().__init__("disturber", pod, records, ())
        self.spared, self.faulty = spared, faulty
        self.operations = []

    def prepare(self, hour, shift, seed):
        """Chooses what happens in the hour; returns the names of the daemons that will suffer."""
        source = random.Random(f"{seed}/{hour}/{self.name}")
        self.operations = []
        if shift == "calm":
            if source.random() < 0.5:
                return set()
            agent, fault = source.choice(self.faulty), source.choice(FAULTS)
            wait_s = source.uniform(0, 0.5)
            clear = source.choice([["inject", "agent", f"ag{agent}", "--clear"],
                                   ["reset", "agent", f"ag{agent}"]])
            self.operations = [(f"inject {fault[0]} into ag{agent}, {clear[0]}",
                                lambda: self.inject(agent, fault, wait_s, clear))]
            return {self.pod.agents[agent].name}
        agents = source.sample(self.pod.agents[self.spared:], source.choice([1, 1, 2]))
        daemons = agents
        if shift == "all":
            daemons = source.choice([[self.pod.server], [self.pod.server, *agents]])
        number = source.choice([signal.SIGTERM, signal.SIGKILL])
        before_s, away_s = source.uniform(0, 1), source.choice([0, 0, source.uniform(0, 1)])
        order = source.sample(daemons, len(daemons))
        text = (f"{number.name} to {', '.join(d.name for d in daemons)}, "
                f"started as {', '.join(d.name for d in order)}")
        self.operations = [(text, lambda: self.restart(daemons, order, number, before_s, away_s))]
        return {daemon.name for daemon in daemons}

    def plan(self, random_source):
        yield from self.operations

    def inject(self, agent, fault, wait_s, clear):
        outcome = self.run(["vipu-admin", "inject", "agent", f"ag{agent}", "--fault", *fault])
        if outcome.code != 0:
            self.wrong(f"inject: {outcome}")
        time.sleep(wait_s)
        outcome = self.run(["vipu-admin", *clear])
        if outcome.code != 0:
            self.wrong(f"{' '.join(clear)}: {outcome}")

    def restart(self, daemons, order, number, before_s, away_s):
        time.sleep(before_s)
        for daemon in daemons:
            if not daemon.end(number):
                self.wrong(f"{daemon.name} does not end on {number.name}")
        time.sleep(away_s)
        for daemon in order:
            if not daemon.start():
                self.wrong(f"{daemon.name} does not start again: {daemon.log_since(0)[-500:]}")
