"""BED and bedGraph written: tab-separated, counted from 0, half-open.

Neither format has a way to write white space within the name of a sequence, and a line that begins with ``#``,
``track`` or ``browser`` is none of data: such names are refused.
https://samtools.github.io/hts-specs/BEDv1.pdf
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from genoformer.errors import InputError
from genoformer.formats.columns import joined, label_texts, number_texts, pieces, position_texts

_UNWRITABLE = re.compile(r"[\s\x00-\x1f\x7f]|^#|^(?:track|browser)$|^$")


def check_names(names: Iterable[str]) -> None:
    """Raise InputError for the first name that BED and bedGraph cannot hold."""
    for name in names:
        if _UNWRITABLE.search(name):
            raise InputError(
                f"sequence {name!r}: BED and bedGraph have no way to write this name, and nothing is renamed silently; "
                "rename it in the input, or write bigwig, npz or tsv"
            )


def bedgraph_lines(
    names: Sequence[str], sequences: np.ndarray, starts: np.ndarray, ends: np.ndarray, values: np.ndarray
) -> Iterator[bytes]:
    """Yield bedGraph lines.

    Parameters
    ----------
    names : of all sequences
    sequences : int64, (spans,): number of the sequence of each span
    starts, ends : int64, (spans,)
    values : float16, (spans,), finite
    """
    texts = number_texts(np.dtype("float16"))
    for rows in pieces(len(starts), 100 + max((len(names[i]) for i in np.unique(sequences).tolist()), default=0) * 4):
        yield joined([label_texts(names, sequences[rows]), position_texts(starts[rows]), position_texts(ends[rows]),
                      texts[np.ascontiguousarray(values[rows]).view(np.uint16)]])  # fmt: skip


def bed_lines(
    names: Sequence[str], sequences: np.ndarray, spans: np.ndarray, *, words: np.ndarray, scores: np.ndarray,
    strands: np.ndarray,
) -> Iterator[bytes]:  # fmt: skip
    """Yield BED lines of six columns.

    Parameters
    ----------
    names : of all sequences
    sequences : int64, (spans,): number of the sequence of each span
    spans : int64, (spans, 2): start and end
    words : bytes, (spans,): the names of the spans, column 4
    scores : int64, (spans,), 0 to 1000
    strands : bytes, (spans,): ``+``, ``-`` or ``.``
    """
    for rows in pieces(len(spans), 200 + max((len(names[i]) for i in np.unique(sequences).tolist()), default=0) * 4):
        places = [position_texts(spans[rows, 0]), position_texts(spans[rows, 1])]
        names_of_rows = label_texts(names, sequences[rows])
        yield joined([names_of_rows, *places, words[rows], position_texts(scores[rows]), strands[rows]])
