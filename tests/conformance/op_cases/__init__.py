"""One generator of cases and one reference in PyTorch for each op, in a file for each family."""

from . import elementwise, image, lines, loss, movement, optimizer, random, reduce, rows

FAMILIES = [elementwise, movement, reduce, image, loss, optimizer, random, rows, lines]


def generators():
    """(name, function that fills a case), in a fixed order."""
    return [generator for family in FAMILIES for generator in family.generators()]


# Not compared, because PyTorch does not define it, or not in the same way.
NOT_COMPARED = {
    "casts": "of values that the target type does not have",
    "sorts": "the order of equal elements where the sort is unstable",
    "random values": "only their distributions are",
}
# Ops that compute but have no counterpart in PyTorch, and why.
NOT_IN_PYTORCH = {
    "lamb_moments": "a part of lamb, for replicas that share out its state (client/session/tensor_sharding_test.cc)",
    "lamb_step": "as lamb_moments",
    "remote_load": "PyTorch has no streaming memory (client/session/remote_buffer_test.cc)",
    "remote_store": "as remote_load",
    "replica_index": "the number of a replica is known to jobs only (client/session/collectives_test.cc)",
}
