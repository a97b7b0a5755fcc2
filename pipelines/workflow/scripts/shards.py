"""Say how many shards each sample needs: python shards.py FOLDER --samples TABLE --shard-bases BASES -o OUT.tsv.

FOLDER/SAMPLE/plan.json is what `genoformer plan --json` printed. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from pathlib import Path


def count_shards(plan: dict, *, shard_bases: int) -> int:
    """Return how many jobs predict an input: by its bases, one at least, and no more than it has windows."""
    wanted = math.ceil(plan["bases"]["predicted"] / shard_bases)
    return max(1, min(wanted, plan["windows"]))


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=Path, required=True)
    parser.add_argument("--shard-bases", type=int, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    with given.samples.open(newline="", encoding="utf-8-sig") as stream:
        lines = [line for line in stream if line.strip() and not line.startswith("#")]
    names = [row["sample"].strip() for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
    with given.output.open("w", encoding="utf-8") as stream:
        stream.write("sample\tbases\tshards\n")
        for name in names:
            plan = json.loads((given.folder / name / "plan.json").read_text())
            shards = count_shards(plan, shard_bases=given.shard_bases)
            stream.write(f"{name}\t{plan['bases']['predicted']}\t{shards}\n")


if __name__ == "__main__":
    main()
