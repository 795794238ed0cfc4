"""Decoding of connectionist temporal classification."""

from typing import List

import torch

from .. import _errors
from .checks import capture_of, check_tensor


def ctc_beam_search_decoder(
    probs: torch.Tensor,
    lengths: torch.Tensor,
    blank: int = 0,
    beam_width: int = 100,
    top_paths: int = 1,
) -> List[torch.Tensor]:
    """The most likely labellings of sequences by a beam search. These IPUs have no such operator.

    The compilation of a model with one lists it among the operators that are not supported, with
    its module and line.

    Args:
        probs: logarithms of probabilities, [time, batch, classes].
        lengths: of the sequences, [batch].
        blank: the number of the class that stands for no label.
        beam_width: how many beginnings of labellings are kept.
        top_paths: how many labellings are returned, P.

    Returns:
        Probabilities [batch, P], lengths [batch, P] and labellings [batch, P, time], so that the
        capture goes on.

    Raises:
        poptorch.Error: an argument is no tensor or of another shape; or the call is outside of a
            capture.
    """
    check_tensor(probs, "The probs of ctc_beam_search_decoder")
    check_tensor(lengths, "The lengths of ctc_beam_search_decoder")
    if probs.dim() != 3 or list(lengths.shape) != [probs.shape[1]]:
        raise _errors.py_error(_errors.CTC_SHAPES % (list(probs.shape), list(lengths.shape)))
    recorder = capture_of(probs, lengths)
    if recorder is None:
        raise _errors.py_error(_errors.CTC_EAGER)
    recorder.use(probs), recorder.use(lengths)
    recorder.refuse("poptorch::ctc_beam_search_decoder", recorder.place())
    time, batch, _ = probs.shape
    found = torch.zeros(batch, top_paths, dtype=probs.dtype, device=probs.device)
    integers = {"dtype": torch.int32, "device": probs.device}
    paths = torch.zeros(batch, top_paths, time, **integers)
    return [found, torch.zeros(batch, top_paths, **integers), paths]
