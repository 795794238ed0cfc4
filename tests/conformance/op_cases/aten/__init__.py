"""One generator of cases for each ATen operator, in a file for each family, as client/aten has them."""

from ..case import FLOATS
from . import (activations, creation, diagonals, distances, elementwise, embedding_bag, indexing, losses, movement, norms, parts,
               pooling, products, random, reductions, resize, sampling, scatter, sorting, special, views)
from .harness import TABLE


def fill_case(case, name):
    case.type = case.one_of(FLOATS)
    case.words.append(case.type)
    TABLE[name](case, name)
