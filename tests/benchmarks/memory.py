"""Memory that training takes on a POD64, from 1 to 64 replicas in one process.

Takes the path of the program `memory`; the POD is that of the environment. Memory that several processes share is counted in equal parts (PSS), so that the
columns can be added.
"""

import os
import subprocess
import sys
from pathlib import Path

NETWORKS = {"mnist": 16, "resnet18-stem7": 16}
REPLICAS = (1, 2, 4, 8, 16, 32, 64)
MIB = 1 << 20


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))


def measure(program, network, batch, replicas, agent):
    client = subprocess.Popen(
        [program, network, str(batch), str(replicas)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    if client.stdout.readline() != "ready\n":
        sys.exit(f"memory.py: error: {replicas} replicas of {network} did not train")
    taken = pss(agent), pss(client.pid)
    client.communicate()
    return taken


def main():
    (pid_file,) = Path(os.environ["VPOD_HOME"]).glob("*agent*.pid")
    agent = int(pid_file.read_text())
    print(f"vipu-agent without a job: {pss(agent) / MIB:.1f} MiB")
    for network, batch in NETWORKS.items():
        print(f"{network}, training, batch {batch}: MiB, and more for each further replica")
        print("  replicas    agent   client    agent +   client +")
        before = None
        for replicas in REPLICAS:
            agent_bytes, client_bytes = measure(sys.argv[1], network, batch, replicas, agent)
            line = f"{replicas:10d}{agent_bytes / MIB:9.1f}{client_bytes / MIB:9.1f}"
            if before:
                more = replicas - before[0]
                line += f"{(agent_bytes - before[1]) / MIB / more:11.2f}{(client_bytes - before[2]) / MIB / more:11.2f}"
            print(line, flush=True)
            before = replicas, agent_bytes, client_bytes


if __name__ == "__main__":
    main()
