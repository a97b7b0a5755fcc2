"""genoformer in Python: phage lambda predicted, its genes, a mutation, a figure.

Run cell by cell in an editor that knows ``# %%``, turn it into a notebook with jupytext, or run it as it is:
``python data/tutorial.py``.
"""

# %%
import tempfile
from pathlib import Path

import numpy as np

import genoformer

data = Path(__file__).parent if "__file__" in globals() else Path("data")
work = Path(tempfile.mkdtemp(prefix="genoformer-tutorial-"))
model = genoformer.load_model("prokaryote-genes")
print(f"{model.checkpoint.name}: {', '.join(model.tracks[0].channels)}")

# %% [markdown]
# ## Predict
#
# What is predicted may be a file, an open one, bases, pairs of name and bases, or Biopython's records. Blocks come one
# after the other, so that a genome of any size passes; `collect` joins them in memory.

# %%
(record,) = genoformer.open_sequences(data / "lambda.fa.gz").records()
values = genoformer.collect(genoformer.predict(data / "lambda.fa.gz", model))[record.name]["coding-frame"]
print(f"{record.name}: {len(values):,} bases, {np.mean(values[:, 1:].sum(axis=1) > 0.5):.0%} of them in genes")

# %% [markdown]
# A few bases are as good as a file:

# %%
piece = record.bases[18_000:20_000]
for block in genoformer.predict([("piece", piece)], model):
    print(block.sequence, block.start, block.values["coding-frame"].shape)

# %% [markdown]
# ## Genes

# %%
genes = genoformer.call_genes(record.bases, values)
longest = max(genes, key=lambda gene: gene.end - gene.start)
print(f"{len(genes)} genes; the longest: {longest.start + 1}-{longest.end}, strand {longest.strand:+d}")

# %% [markdown]
# ## A file
#
# What is worth keeping goes into HDF5, with all that is known of how it came about. Any part of it is read without the
# rest, from several threads too if need be.

# %%
path = genoformer.predict_file(data / "lambda.fa.gz", work / "lambda.h5", model)
with genoformer.open_store(path) as store:
    print(store.tracks["coding-frame"].channels, store[record.name, 190:736].mean(axis=0).round(3))
    for found in genoformer.stored_genes(store, genoformer.open_sequences(data / "lambda.fa.gz")):
        print(found.name, len(found.genes), "genes, the same")

# %% [markdown]
# ## What a mutation does
#
# A stop codon in the middle of the longest gene:

# %%
middle = longest.start + (longest.end - longest.start) // 6 * 3
stop = "TAA" if longest.strand > 0 else "TTA"
variant = genoformer.Variant(record.name, middle, record.bases[middle : middle + 3].decode(), stop)
(score,) = genoformer.score_variants([variant], data / "lambda.fa.gz", model)
for group, change in score.effect.changes.items():
    print(f"{variant}: {group} gains {change.gain:.2f}, loses {change.loss:.2f} at {change.loss_at + 1}")

# %% [markdown]
# ## A figure
#
# With matplotlib (`pip install 'genoformer[plots]'`), `plot_region` returns the axes, to go on with.

# %%
try:
    axes = genoformer.plotting.plot_region(path, f"{record.name}:{longest.start + 1}-{longest.end}")
    axes["values"].figure.savefig(work / "longest.png")
    print(f"drawn: {work / 'longest.png'}")
except genoformer.GenoformerError as error:
    print(error)
