"""How variants are scored: a choice of settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from genoformer.errors import ConfigError
from genoformer.formats.vcf import Variant
from genoformer.predict import Settings
from genoformer.variants.windows import DEFAULT_WINDOW, cell_size

METHODS = ("exact", "crop")


@dataclass(frozen=True)
class Scoring:
    """How variants are scored.

    Attributes
    ----------
    window : bases the model sees around a variant
    cell : variants within so many bases share a window; None: an eighth of it; 1: each in the very middle. With "crop"
        and None, substitutions within three windows share one of four, so that each has half a window to each side
    settings : how predictions are computed; ``batch_size`` 1: as many windows as suit the device
    method : "exact": predict the whole window with every allele; "crop": of substitutions only the bases around what
        they change of the model's inputs, with all else held as it is without them; see `genoformer.variants.crops`
    """

    window: int = DEFAULT_WINDOW
    cell: int | None = None
    settings: Settings = field(default_factory=Settings)
    method: str = "exact"

    def __post_init__(self) -> None:
        cell_size(self.window, self.cell)
        if self.method not in METHODS:
            raise ConfigError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")

    def is_cropped(self, variant: Variant) -> bool:
        """Tell whether only a part of a variant's window is predicted again."""
        return self.method == "crop" and len(variant.reference) == len(variant.alternate)
