"""Figures of what a store holds, for notebooks and papers; needs matplotlib (extra ``plots``)."""

from genoformer.plotting.region import plot_region, save_figure

__all__ = ["plot_region", "save_figure"]
