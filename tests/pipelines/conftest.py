"""The scripts of the pipelines on the path."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PIPELINES = HERE.parents[1] / "pipelines"
SCRIPTS = [PIPELINES / "prokaryote-genes", PIPELINES, PIPELINES / "workflow" / "scripts"]
sys.path[:0] = [str(folder) for folder in (HERE, *SCRIPTS)]
