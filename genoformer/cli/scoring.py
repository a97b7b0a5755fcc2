"""Options of commands that score changes of a sequence, and what they prepare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from genoformer.cli.options import ProcessOptions, bundle
from genoformer.cli.progress import say

if TYPE_CHECKING:
    from genoformer.formats.sequences import Sequences
    from genoformer.model.genoformer import Genoformer
    from genoformer.variants.scoring import Scoring

_WINDOW, _CELLS = 3000, 8  # genoformer.variants.windows, whose import would load torch


@dataclass(frozen=True)
class ScoringOptions:
    """How changes are scored."""

    window: int
    share: int | None
    batch_size: int | None
    chunk_size: int | None
    strand_average: bool
    genetic_code: str
    method: str

    def prepare(self, model: str, hardware: ProcessOptions, sequences: Sequences) -> tuple[Genoformer, Scoring]:
        """Load the model and choose the genetic code."""
        from genoformer.genetic_code import choose_genetic_code
        from genoformer.model.checkpoint import load_model
        from genoformer.plan import make_plan
        from genoformer.predict import Settings
        from genoformer.variants.scoring import Scoring
        from genoformer.variants.windows import cell_size

        cell_size(self.window, self.share)
        device = hardware.use()
        loaded = load_model(model, device=device)
        table, why = 11, "the default"
        if self.genetic_code != "auto":
            table, why = int(self.genetic_code), "as asked"
        elif "coding-frame" in loaded.heads:
            table, why = choose_genetic_code("auto", make_plan(sequences), sequences, loaded)
        where = device if hardware.count == 1 else f"{hardware.count} processes"
        say(f"model {loaded.checkpoint.name} on {where}, genetic code {table} ({why})")
        settings = Settings(
            chunk_size=self.chunk_size,
            batch_size=self.batch_size or 1,
            strand_average=self.strand_average,
            genetic_code=table,
        )
        return loaded, Scoring(self.window, self.share, settings, method=self.method)


# fmt: off
scoring_options = bundle(
    "scoring", ScoringOptions,
    click.option("--window", type=click.IntRange(min=1), default=_WINDOW, show_default=True, metavar="BASES",
                 help="Bases the model sees, what changes in their middle. Time grows with it."),
    click.option("--share", type=click.IntRange(min=1), metavar="BASES",
                 help="Changes within so many bases may share a window and its reference; 1: each has its own, and "
                      f"lies in its very middle.  [default: 1/{_CELLS} of the window; with crop, see there]"),
    click.option("--batch-size", type=click.IntRange(min=1), metavar="N",
                 help="Windows computed together: for speed, changes nothing else.  [default: what suits the device]"),
    click.option("--chunk-size", type=click.IntRange(min=0), metavar="TOKENS", hidden=True),
    click.option("--strand-average/--no-strand-average", default=True, show_default=True,
                 help="Mean of the predictions for both strands: twice the time."),
    click.option("--genetic-code", default="auto", show_default=True, metavar="auto|N",
                 type=click.Choice(["auto", "11", "4"]),
                 help="NCBI translation table; auto tells 11 from 4 by the reference."),
    click.option("--method", type=click.Choice(["exact", "crop"]), default="exact", show_default=True,
                 help="exact: predict the whole window with every allele; crop: of substitutions only the bases around "
                      "what they change, in windows four times as long: faster, and about as right (README)."),
)
# fmt: on
