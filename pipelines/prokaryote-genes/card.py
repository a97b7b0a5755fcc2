"""Fill the model card of a model folder from what was measured.

python pipelines/prokaryote-genes/card.py MODEL [--measured work/validation.json --measured work/test.json]

Words are those of card_template.md and of the notes; numbers come from the JSON of measure.py, from config.json and
from accessions.tsv. Numbers of another model are refused.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import click
import tables
from common import ACCESSIONS, HERE, SPLITS, WORK, main, read_json, read_table, say, whole
from measure import FORMAT
from tables import unique

from genoformer.cli.models import parameters
from genoformer.errors import ConfigError, InputError
from genoformer.model.checkpoint import Checkpoint, read_checkpoint
from genoformer.plain import to_dict

TEMPLATE = HERE / "card_template.md"
_NOTES = {"training": str, "fails": list, "near": str, "ablation": str}

Measured = dict[str, Any]


def read_notes(path: Path | None) -> dict[str, Any]:
    """Read what only people know: training (text: hours, hardware), fails (list), near and ablation (texts).

    Raises
    ------
    InputError : it is no TOML, or has other keys or kinds
    """
    if path is None:
        return {}
    try:
        notes = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as TOML: {error}") from None
    for key, value in notes.items():
        if key not in _NOTES or not isinstance(value, _NOTES[key]):
            expected = ", ".join(f"{name} ({kind.__name__})" for name, kind in _NOTES.items())
            raise InputError(f"{path}: {key!r} is not one of {expected}")
    return notes


def read_measured(path: Path, checkpoint: Checkpoint) -> Measured:
    """Read what measure.py wrote.

    Raises
    ------
    InputError : it is something else
    ConfigError : it is of other weights
    """
    found = read_json(path)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path}: is not what measure.py writes")
    if found["model"]["weights-sha256"] != checkpoint.sha256:
        raise ConfigError(
            f"{path}: was measured with other weights ({found['model']['weights-sha256'][:12]}) than those of "
            f"{checkpoint.path} ({checkpoint.sha256[:12]}); measure again"
        )
    return found


def fill(
    checkpoint: Checkpoint, measured: Sequence[Measured], notes: Mapping[str, Any], *, accessions: Path = ACCESSIONS,
    ablation: Path | None = None, tried: Path | None = None,
) -> str:  # fmt: skip
    """Return the card.

    Parameters
    ----------
    checkpoint : the model
    measured : what measure.py found, validation before test
    notes : see `read_notes`
    accessions : table of all genomes
    ablation, tried : tables, tab-separated with a header, that are shown as they are
    """
    training = checkpoint.training
    fields = {
        "name": checkpoint.name,
        "parameters": f"{parameters(checkpoint):,}",
        "sha256": checkpoint.sha256,
        "calibration": _calibration(training.get("calibration", {})),
        "shape": _settings(to_dict(checkpoint.config)),
        "training": _training(training),
        "notes_training": notes.get("training", "Hours and hardware were not recorded."),
        "how": "\n".join(unique(line for one in measured for line in how(one))),
        "results": "\n\n".join(results(one) for one in measured) or "Nothing was measured yet.",
        "fails": fails(measured, notes.get("fails", [])),
        "ablation": "\n\n".join(
            [*([notes["ablation"].strip()] if ablation and "ablation" in notes else []), _shown(ablation)]
        ),
        "tried": _shown(tried),
        "near": " ".join([near(training, accessions), *([notes["near"]] if "near" in notes else [])]),
        "data": data(training, accessions),
    }
    return Template(TEMPLATE.read_text()).substitute(fields)


_PROGRAMS = {
    "Prodigal": "Prodigal learned from each whole genome, or from all its contigs of one length, and was told the "
    "genetic code.",
    "Prodigal meta": '"Prodigal meta" is its meta mode, which learns nothing.',
    "FragGeneScan": "FragGeneScan ran as FragGeneScanRs, `-complete=0`, on contigs with the training file `complete`. "
    "It knows genetic code 11 only.",
    "FragGeneScan 454_30": "On reads FragGeneScan ran with the training files named.",
}


def how(measured: Measured) -> list[str]:
    """Write what was simulated, and by which programs and settings it was measured."""
    kinds, simulation = {row["kind"] for row in measured["rows"]}, measured["simulation"]
    lines = []
    if "contigs" in kinds:
        lines.append("Contigs are cut anywhere, on both strands, without errors.")
    if "reads" in kinds:
        lines.append(
            f"Reads have {simulation['read_length']:,} bases, of both strands, with substitutions, insertions and "
            "deletions in equal parts, spread evenly, as training draws them."
        )
    if kinds & {"contigs", "reads"}:
        lines.append(f"Of each length and rate there are {simulation['bases']:,} bases of each genome.")
    if any(row["caller"].endswith(tables.ONE_GENOME) for row in measured["rows"]):
        lines.append(
            '"One genome" is `predict --one-genome`: told that all contigs, or all reads, are of one organism, as '
            "Prodigal is when it learns from them."
        )
    options = " ".join(f"`{option}`" for option in measured["predict"]) or "none but the defaults"
    versions = unique(measured["programs"].values())
    lines.append(f"Options of `genoformer predict`: {options}. Other programs: {', '.join(versions) or 'none'}.")
    return lines + [text for name, text in _PROGRAMS.items() if name in measured["programs"]]


def results(measured: Measured) -> str:
    """Write the tables of one split."""
    rows = measured["rows"]
    title = {"validation": "Validation genomes", "test": "Test genomes, read once"}[measured["split"]]
    parts = [f"## {title}"]
    if tables.of(rows, data="genome"):
        parts += ["Whole genomes:", tables.genome_table(rows), "Their means:", tables.mean_table(rows, data=["genome"])]
        gains = tables.gain_table(rows)
        parts += ["Ours less Prodigal's, genome by genome:", gains, _passes(rows)] if gains else []
        judged = tables.orforise_table(rows)
        parts += ["The same genes judged by ORForise, which has rules of its own:", judged] if judged else []
    for kind, words in (("contigs", "Contigs, means over genomes:"), ("reads", "Reads, means over genomes:")):
        names = tables.data_names(rows, kind)
        parts += [words, tables.mean_table(rows, data=names)] if names else []
    return "\n\n".join(parts)


def _passes(rows: Sequence[tables.Row]) -> str:
    """Say on which genomes ours are better than Prodigal's."""
    better: dict[str, list[str]] = {"bases": [], "bases of genes": [], "3' ends": []}
    for theirs in tables.of(rows, data="genome", caller="Prodigal"):
        for what, caller, keys in (
            ("bases", tables.OURS, ("strand", "f1")),
            ("bases of genes", tables.OURS_GENES, ("strand", "f1")),
            ("3' ends", tables.OURS_GENES, ("genes", "three-prime", "f1")),
        ):
            own = tables.of(rows, data="genome", genome=theirs["genome"], caller=caller)
            if own and tables.estimate(own[0], *keys).value > tables.estimate(theirs, *keys).value:
                better[what].append(theirs["organism"] or theirs["genome"])
    return " ".join(f"By {what} it passes Prodigal on {', '.join(names) or 'none'}." for what, names in better.items())


def fails(measured: Sequence[Measured], known: Sequence[str]) -> str:
    """Write what is known to be weak, and the genes by length."""
    parts = ["\n".join(f"- {line}" for line in known)] if known else []
    for one in measured:
        found = tables.length_table(one["rows"], [tables.OURS_GENES, "Prodigal"])
        if found:
            parts += [f"Share of genes found, {one['split']} genomes together:", found]
    return "\n\n".join(parts) or "Nothing was measured yet."


def near(training: Mapping[str, Any], accessions: Path) -> str:
    """Tell what of the training data is of the genera of validation and test genomes."""
    rows = read_table(accessions, needed=("split", "name", "organism"))
    names = _stems(training)
    learned = {_genus(row["organism"]) for row in rows if row["name"] in names}
    shared = [f"{row['organism']} ({row['split']})" for row in rows
              if row["split"] != "train" and _genus(row["organism"]) in learned]  # fmt: skip
    if not shared:
        return "No validation or test genome is of the genus of a training genome."
    return f"Of one genus with a training genome, or phages as some of these are: {', '.join(shared)}."


def _genus(organism: str) -> str:
    words = organism.replace("Candidatus ", "").split()
    return "phage" if "phage" in words else words[0].strip("[]") if words else ""


def _stems(training: Mapping[str, Any]) -> list[str]:
    """Return the names of the training genomes, in the order of the recipe."""
    return [Path(name).name.split(".fa")[0] for name in training.get("data-sha256", {})]


def data(training: Mapping[str, Any], accessions: Path) -> str:
    """List the genomes that the model has learned from, and those that it was measured on."""
    rows = read_table(
        accessions, needed=("split", "name", "tier", "organism", "accessions", "bases", "licence", "note")
    )
    names = _stems(training)
    unknown = [name for name in names if name not in {row["name"] for row in rows}]
    if unknown:
        raise InputError(f"{accessions}: lacks {unknown[0]!r}, which the model was trained on; add it")
    lines = []
    for row in rows:
        if row["split"] != "train" or row["name"] in names:
            listed = row["accessions"].split(",")
            shown = ", ".join(listed) if len(listed) < 4 else f"{listed[0]} ... {listed[-1]} ({len(listed)})"
            lines.append([row["organism"], row["split"], row["tier"], shown, f"{int(row['bases']):,}", row["licence"],
                          row["note"] or "-"])  # fmt: skip
    lines.sort(key=lambda line: (SPLITS.index(line[1]), line[2]))
    return tables.table(["organism", "split", "tier", "accessions", "bases", "licence of the source", "note"], lines)


def _calibration(found: Mapping[str, Any]) -> str:
    fits = [f"{track} by {fit['temperature']:.3f}" for track, fit in found.items()]
    return f"Calibrated on the validation genomes: logits divided, {', '.join(fits)}." if fits else "Not calibrated."


def _settings(settings: Mapping[str, Any]) -> str:
    """Write settings that are not empty as a table of two columns."""

    def word(value: Any) -> str:
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    rows = [(f"`{key}`", word(value)) for key, value in settings.items() if value not in ([], (), "", None)]
    return tables.table(["setting", "value"], rows)


def _training(training: Mapping[str, Any]) -> str:
    """Write how much was learned from what, and by which settings."""
    if not training:
        return "Not recorded."
    recipe = training.get("train", {})
    steps = training.get("steps", 0)
    bases = steps * recipe.get("step_bases", 0) * recipe.get("accumulate", 1)
    lines = [f"{len(_stems(training))} genome sets; {steps:,} steps, {bases / 1e6:,.0f} Mb of sequence."]
    if training.get("init-from"):
        lines.append(f"It began with other weights, of SHA-256 `{training['init-from']['weights-sha256']}`.")
    return " ".join(lines) + "\n\n" + _settings(recipe)


def _shown(path: Path | None) -> str:
    """Write a table as it is."""
    if path is None:
        return "No table was given."
    rows = read_table(path, needed=())
    return tables.table(list(rows[0]), [list(row.values()) for row in rows]) if rows else "The table is empty."


@click.command(help=__doc__.splitlines()[0])
@click.argument("model", metavar="MODEL")
@click.option("--measured", type=click.Path(dir_okay=False, path_type=Path), multiple=True, metavar="JSON",
              help="Of measure.py; repeatable.  [default: work/{validation,test}.json, if there]")  # fmt: skip
@click.option("--notes", type=click.Path(dir_okay=False, path_type=Path), metavar="TOML",
              help="Texts: training, near, ablation; fails, a list.  [default: notes.toml beside it]")  # fmt: skip
@click.option("--accessions", type=click.Path(dir_okay=False, path_type=Path), default=ACCESSIONS, metavar="TSV",
              help="Table of the genomes.  [default: accessions.tsv beside this script]")  # fmt: skip
@click.option("--ablation", type=click.Path(dir_okay=False, path_type=Path), metavar="TSV", help="Shown as it is.")
@click.option("--tried", type=click.Path(dir_okay=False, path_type=Path), metavar="TSV", help="Shown as it is.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="[default: MODEL_CARD.md in the folder of the model]")  # fmt: skip
def command(
    model: str, measured: tuple[Path, ...], notes: Path | None, accessions: Path, ablation: Path | None,
    tried: Path | None, output: Path | None,
) -> None:  # fmt: skip
    """Fill the card."""
    checkpoint = read_checkpoint(model)
    paths = measured or [path for path in (WORK / "validation.json", WORK / "test.json") if path.exists()]
    beside = HERE / "notes.toml"
    found = [read_measured(path, checkpoint) for path in paths]
    found.sort(key=lambda one: SPLITS.index(one["split"]))
    words = read_notes(notes or (beside if beside.exists() else None))
    text = fill(checkpoint, found, words, accessions=accessions, ablation=ablation, tried=tried)
    target = checkpoint.path / "MODEL_CARD.md" if output is None else output
    with whole(target) as part:
        part.write_text(text)
    say(f"{target}: {', '.join(one['split'] for one in found) or 'nothing'} measured")


if __name__ == "__main__":
    main(command)
