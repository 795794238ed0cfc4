"""The arithmetic of batches: how many rows of the data set one call of a model takes.

A micro-batch is what `forward` sees. One call takes

    combined batch = micro-batch × d × (R / g) × a      [rows]

with d device iterations, R replicas of this process, g replicas that share an input, and a
micro-batches of an update. Along dimension 0, the device iteration is outermost, then the
accumulation, then the replica, then the row of the micro-batch.
Source: PopTorch user guide 3.2, "Efficient data batching".
"""

from typing import Any, NamedTuple

from .texts import BATCH_DIMENSION


class Factors(NamedTuple):
    """What multiplies a micro-batch. The fields have the names of the options."""

    device_iterations: int
    replication_factor: int
    input_group_size: int
    gradient_accumulation: int

    @classmethod
    def of(cls, options: Any) -> "Factors":
        """Reads the factors from a `poptorch.Options`."""
        return cls(
            options.device_iterations,
            options.replication_factor,
            getattr(options, "input_group_size", 1),
            options.Training.gradient_accumulation,
        )

    @property
    def product(self) -> int:
        """Micro-batches that one call takes."""
        groups = self.replication_factor // self.input_group_size
        return self.device_iterations * groups * self.gradient_accumulation


def micro_batch_size(options: Any, name: str, rows: int) -> int:
    """Rows of a micro-batch, from the rows (dimension 0) of a whole input.

    Args:
        options: a `poptorch.Options`.
        name: the name of the input, for the error.
        rows: the length of dimension 0; 1 for a tensor without dimensions.

    Raises:
        AssertionError: `rows` is not a multiple of the product of the factors. The text lists
            the factors, the product, and the row of the input that disagrees.
    """
    factors = Factors.of(options)
    assert rows % factors.product == 0, BATCH_DIMENSION % (
        (name, rows) + factors + (factors.product,)
    ) + _table(factors, name, rows)
    return rows // factors.product


def _table(factors: Factors, name: str, rows: int) -> str:
    """The product as a table of one factor per line, which ends in the line that disagrees."""
    product = factors.product
    micro_batch, remainder = divmod(rows, product)
    accepted = [batch * product for batch in (micro_batch, micro_batch + 1) if batch > 0]
    lines = [
        ("device iterations", str(factors.device_iterations)),
        ("replicas / group size", f"{factors.replication_factor} / {factors.input_group_size}"),
        ("gradient accumulation", str(factors.gradient_accumulation)),
        ("product d × R × a", str(product)),
        (
            f"rows of {name}",
            f"{rows} = {product} × {micro_batch} + {remainder}, accepted are "
            + " or ".join(f"{n} (batch_size={n // product})" for n in accepted),
        ),
    ]
    width = max(len(title) for title, _ in lines)
    return "".join(f"\n  {title:<{width}}  {value}" for title, value in lines)
