"""Functions and contexts for forward. They are also in `poptorch` itself."""

from ._blocks import Block, BeginBlock, BlockFunction, LegacyBeginBlockFn, removeBlocks
from ._capture.losses import identity_loss
from ._ops.cpu import CPU
from ._ops.ctc import ctc_beam_search_decoder
from ._ops.custom import custom_op
from ._ops.loop import for_loop
from ._ops.marks import nop, recomputationCheckpoint, set_available_memory
from ._ops.matmul import serializedMatMul
from ._ops.multi_conv import MultiConv
from ._ops.name_scope import NameScope
from ._ops.overlap import set_overlap_for_input, set_overlap_for_output
from ._ops.printing import ipu_print_tensor
from ._ops.slices import dynamic_slice, dynamic_update

__all__ = [
    "BeginBlock",
    "Block",
    "BlockFunction",
    "CPU",
    "LegacyBeginBlockFn",
    "MultiConv",
    "NameScope",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "identity_loss",
    "ipu_print_tensor",
    "nop",
    "recomputationCheckpoint",
    "removeBlocks",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]
