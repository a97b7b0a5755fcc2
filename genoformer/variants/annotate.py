"""A VCF in, the same variants with their scores out."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import genoformer
from genoformer.errors import InputError
from genoformer.formats.vcf import (
    REASONS,
    SKIPPED,
    Info,
    Variant,
    Variants,
    open_reference,
    read_variants,
    with_info,
)
from genoformer.formats.vcf_write import writing_variants
from genoformer.model.genoformer import Genoformer
from genoformer.tracks import Track
from genoformer.variants.effects import Effect, groups_of, label_of
from genoformer.variants.score import Score, score_variants
from genoformer.variants.scoring import Scoring
from genoformer.workers import Workers


@dataclass
class Summary:
    """What became of a VCF.

    Attributes
    ----------
    records, alleles : of the input
    written : records of the output, one alternate allele each
    changed : records that were split or left-aligned
    scored : alleles with a score
    skipped : how many alleles have none, by reason
    notes : what a user should know, in words
    """

    records: int = 0
    alleles: int = 0
    written: int = 0
    changed: int = 0
    scored: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()


def annotate_vcf(  # noqa: PLR0913 - what, with what, where to
    variants: str | os.PathLike[str],
    fasta: str | os.PathLike[str],
    model: Genoformer,
    output: str,
    *,
    scoring: Scoring | None = None,
    workers: Workers | None = None,
    command: str = "",
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Summary:
    """Score the variants of a VCF and write them, split, left-aligned and sorted, with what changes in INFO.

    Every allele of the input is in the output; one that cannot be scored has GF_SKIPPED.

    Parameters
    ----------
    variants : VCF, plain, gzip or bgzip, or BCF; ``-`` is standard input
    fasta : the reference
    output : .vcf.gz (bgzip, with an index), .bcf (with an index), .vcf, or ``-``
    scoring, workers : see `score_variants`
    report : called with the records done and their number

    Raises
    ------
    InputError : a file cannot be read, or there are variants and none can be scored
    FormatError : a file is damaged
    ResourceError : the output cannot be written
    """
    scoring = scoring or Scoring()
    sequences = open_reference(fasta)
    fields = info_fields(model.tracks)
    with tempfile.TemporaryDirectory(prefix="genoformer-") as folder:
        found = read_variants(variants, fasta, Path(folder), fields=fields)
        summary = Summary(found.records, found.alleles, changed=found.changed, notes=found.notes)
        with found.open() as file, writing_variants(output, lengths=sequences.lengths()) as write:
            write(_with_origin(str(file.header), model, scoring, command=command))
            scores = score_variants(_candidates(found), sequences, model, scoring=scoring, workers=workers)
            for record in file:
                summary.written += 1
                reason, values = str(record.info.get(SKIPPED, "")), {}
                if not reason:
                    score = next(scores)
                    reason, values = score.reason, _values(score, record.start)
                summary.skipped.update([reason] if reason else [])
                summary.scored += not reason
                write(with_info(str(record), {SKIPPED: reason} if reason else values, drop={SKIPPED}))
                report(summary.written, found.normal)
            _check(summary, found, source=str(variants))
    return summary


def info_fields(tracks: Sequence[Track]) -> list[Info]:
    """Return the definitions of the INFO fields that are written for these tracks."""
    fields = []
    where = "of it, bases from POS on the reference, negative to the left"
    for track in tracks:
        for group in groups_of(track):
            name = f"GF_{group.name.upper()}"
            for what, verb in (("GAIN", "rise"), ("LOSS", "fall")):
                said = f"Largest {verb} of the {group.said}, over the bases that both alleles have"
                fields.append(Info(f"{name}_{what}", "A", "Float", said))
                fields.append(Info(f"{name}_{what}_AT", "A", "Integer", f"Place {where}"))
            for what, which in (("INSERTED", "the alternate"), ("DELETED", "the reference")):
                said = f"Largest {group.said}, among the bases that only {which} allele has"
                fields.append(Info(f"{name}_{what}", "A", "Float", said))
        if track.kind == "class":
            name = f"GF_{label_of(track).upper()}_SHIFT"
            said = f"Largest share of probability that goes from some classes of track {track.name} to others at a base"
            fields.append(Info(name, "A", "Float", said))
            fields.append(Info(f"{name}_AT", "A", "Integer", f"Place {where}"))
    return fields


def _values(score: Score, start: int) -> dict[str, str]:
    """Write what an allele changes as INFO; positions count from ``start``."""
    effect: Effect | None = score.effect
    if effect is None:
        return {}
    values: dict[str, str] = {}

    def put(key: str, largest: float, place: int) -> None:
        values[key] = f"{largest:.4g}"
        values[f"{key}_AT"] = str(place - start) if largest > 0 else "."

    for name, change in effect.changes.items():
        key = f"GF_{name.upper()}"
        put(f"{key}_GAIN", change.gain, change.gain_at)
        put(f"{key}_LOSS", change.loss, change.loss_at)
        for what, among in (("INSERTED", effect.inserted), ("DELETED", effect.deleted)):
            if name in among:
                values[f"{key}_{what}"] = f"{among[name]:.4g}"
    for label, (share, place) in effect.shifts.items():
        put(f"GF_{label.upper()}_SHIFT", share, place)
    return values


def _candidates(found: Variants) -> Iterator[Variant]:
    """Yield the alleles without a reason against them; read beside the records, which wait for their scores."""
    with found.open() as file:
        for record in file:
            if SKIPPED not in record.info:
                yield Variant(record.chrom, record.start, str(record.ref), (record.alts or ("",))[0])


def _with_origin(header: str, model: Genoformer, scoring: Scoring, *, command: str) -> str:
    """Put into the header how the scores came about, in place of what an earlier run said."""
    own = ("##genoformerVersion=", "##genoformerModel=", "##genoformerScoring=", "##genoformerCommand=")
    *lines, last = [line for line in header.splitlines() if not line.startswith(own)]
    checkpoint: Any = model.checkpoint
    settings = scoring.settings
    said = (
        f"window={scoring.window},cell={scoring.cell or 'default'},genetic-code={settings.genetic_code},"
        f"strand-average={settings.strand_average},precision={settings.precision},method={scoring.method}"
    )
    lines += [own[0] + genoformer.__version__]
    lines += [f"{own[1]}{checkpoint.name},sha256={checkpoint.sha256}"] if checkpoint is not None else []
    lines += [own[2] + said]
    lines += [own[3] + " ".join(command.split())] if command else []
    return "\n".join([*lines, last]) + "\n"


def _check(summary: Summary, found: Variants, *, source: str) -> None:
    """Raise unless every record was written, and at least one scored."""
    if summary.written != found.normal or found.normal < found.alleles:
        raise InputError(
            f"{source}: {found.alleles:,} alleles were read and {summary.written:,} came out of bcftools; "
            "nothing is written; see what `bcftools norm` says of the file"
        )
    if summary.written and not summary.scored:
        why = "; ".join(f"{number:,} {reason} ({REASONS[reason]})" for reason, number in summary.skipped.items())
        raise InputError(f"{source}: not one of its {summary.written:,} alleles can be scored: {why}")
