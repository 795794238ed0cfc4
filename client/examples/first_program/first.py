"""A first program: a small network learns which of three clusters a point belongs to. It runs on the
IPUs that poprun gave to it; without poprun, on the IPUModel in its own process.
"""

import numpy as np
import vpod

BATCH = 32
CENTRES = np.array([[0, 2], [2, -1], [-2, -1]])

graph = vpod.Graph()
points = graph.input("points", [BATCH, 2])
labels = graph.input("labels", [BATCH], "int32")
net = vpod.nn.Builder(graph, seed=1, training=True)
hidden = vpod.relu(net.linear("hidden", points, 16))
loss = vpod.cross_entropy(net.linear("out", hidden, 3), labels)
graph.output("loss", loss)

train = vpod.Program("train", loss=loss, optimizer=vpod.Sgd(0.5, momentum=0.5))
with vpod.Session(vpod.compile(graph, [train])) as session:
    random = np.random.default_rng(session.replica_offset)  # other points on other replicas
    shape = [session.local_replicas, BATCH] if session.local_replicas > 1 else [BATCH]
    for step in range(20):
        chosen = random.integers(3, size=shape)
        data = {"points": CENTRES[chosen] + random.normal(size=[*shape, 2]), "labels": chosen}
        losses = session.run("train", data)["loss"]
        if session.replica_offset == 0:
            print(f"step {step} loss {losses.mean():.4f}", flush=True)
