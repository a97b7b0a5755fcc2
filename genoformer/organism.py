"""The context of an organism: what a sample of its sequences tells about all of them, such as its codon usage."""

from __future__ import annotations

from genoformer.errors import InputError
from genoformer.formats.given import Given, as_sequences
from genoformer.formats.sequences import Sequences
from genoformer.model.device import default_chunk_size
from genoformer.model.genoformer import Genoformer
from genoformer.model.shared import Context, check_context, context_of
from genoformer.plan import Plan, make_plan
from genoformer.sampling import sample

CONTEXT_WINDOWS = 2
"""Stretches of a sample, see `genoformer.sampling`: as many bases as windows of one organism have in training."""


def organism_context(sequences: Given, model: Genoformer, *, genetic_code: int = 11) -> Context:
    """Summarize a sample of the sequences of one organism, to be seen beside each of them.

    A contig of 1,000 bases tells little about the organism that it is of; with the context it is predicted as if it lay
    in a long window of it. The sample is of the longest sequences, 100,000 bases, read on both strands. It is the same
    for every part of an input, and so are the values.

    Parameters
    ----------
    sequences : a path, an open file, bases, or records: see `genoformer.formats.given.as_sequences`
    model : of `genoformer.load_model`
    genetic_code : NCBI translation table

    Returns
    -------
    Context, for ``Settings(context=...)``

    Raises
    ------
    ConfigError : the model has no attention that can see one
    InputError, FormatError : the input cannot be used
    """
    sequences = as_sequences(sequences)
    return planned_context(make_plan(sequences), sequences, model, genetic_code=genetic_code)


def planned_context(plan: Plan, sequences: Sequences, model: Genoformer, *, genetic_code: int) -> Context:
    """Summarize a sample of what will be predicted; see `organism_context`."""
    check_context(model)
    found = sample(plan, sequences, model, windows=CONTEXT_WINDOWS)
    if not found:
        raise InputError(f"{plan.source}: has no bases to tell an organism by")
    return context_of(model, found, genetic_code=genetic_code, chunk_size=default_chunk_size(model.device))
