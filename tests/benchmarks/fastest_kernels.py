"""Which kernels of its libraries make PyTorch fastest on this machine: the peer deserves the best that it has.

OpenBLAS chooses its kernels by the processor's name, and takes slow ones for a name that it does not know; oneDNN by the
processor's instructions. Each choice is tried in a process of its own by training steps: OpenBLAS by those of the
transformer encoder, which consists of products of matrices, oneDNN by those of ResNet-18. The processes take turns, and the
least time of the processor wins. Prints the environment of the winners, and on the standard error output what each took.
"""

import os
import subprocess
import sys
import time

BLAS, ONEDNN = "OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA"
VARIABLES = (BLAS, ONEDNN)
# None is the library's own choice. A choice that the processor cannot run ends its process, and is none.
CHOICES = {
    BLAS: (None, "Haswell", "Zen", "SkylakeX", "Cooperlake", "Sapphirerapids"),
    ONEDNN: (None, "AVX2", "AVX512_CORE"),
}
WORKLOADS = {BLAS: "encoder512", ONEDNN: "resnet18-stem7"}
ROUNDS = 3


def without_choice(environment):
    return {name: value for name, value in environment.items() if name not in VARIABLES}


def command_of(variable):
    return [sys.executable, __file__, "--serve", WORKLOADS[variable]]


class Trial:
    """A process that answers each line with the processor's milliseconds of a step."""

    def __init__(self, choice, command, environment):
        self.choice = choice
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.milliseconds = []

    def step(self):
        """Whether there was an answer."""
        try:
            print(file=self.process.stdin, flush=True)
            self.milliseconds.append(float(self.process.stdout.readline()))
        except (BrokenPipeError, ValueError):
            return False
        return True

    def stop(self):
        self.process.kill()
        self.process.communicate()


def fastest(variable, environment, choices, command):
    """The best choice; what all took goes to the standard error output."""
    trials = []
    for choice in choices:
        chosen = {} if choice is None else {variable: choice}
        trials.append(Trial(choice, command, {**environment, **chosen}))
    try:
        # The first step, which allocates, is not counted.
        alive = [trial for trial in trials if trial.step()]
        for trial in alive:
            trial.milliseconds.clear()
        for _ in range(ROUNDS):
            alive = [trial for trial in alive if trial.step()]
    finally:
        for trial in trials:
            trial.stop()
    if not alive:
        sys.exit(f"fastest_kernels.py: error: PyTorch ran with none of the choices of {variable}")
    alive.sort(key=lambda trial: min(trial.milliseconds))
    taken = ", ".join(f"{trial.choice or 'its own choice'} {min(trial.milliseconds):.1f} ms" for trial in alive)
    print(f"{variable}: {taken}", file=sys.stderr, flush=True)
    return alive[0].choice


def serve(workload):
    import torch
    from models import MODELS, Peer
    torch.set_num_threads(2)
    peer = Peer(workload, True, torch.contiguous_format, MODELS[workload][1])
    for _ in sys.stdin:
        # Time of the processor, which is the same whatever else the machine does.
        start = time.process_time()
        peer.step()
        print((time.process_time() - start) * 1e3, flush=True)


def main():
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    # Threads that spin after their work would slow the process whose turn is next.
    environment = {**without_choice(os.environ), "OMP_WAIT_POLICY": "passive"}
    for variable in VARIABLES:
        choice = fastest(variable, environment, CHOICES[variable], command_of(variable))
        if choice is not None:
            environment[variable] = choice
    print(*(f"{name}={environment[name]}" for name in VARIABLES if name in environment))


if __name__ == "__main__":
    main()
