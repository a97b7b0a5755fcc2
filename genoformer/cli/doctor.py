"""genoformer doctor: versions, devices, and whether the model predicts here what it predicted when it was made."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

import click

from genoformer.cli.options import DeviceOptions, device_options, model_option
from genoformer.cli.progress import say

DEPENDENCIES = ("torch", "numpy", "pysam", "biopython", "h5py", "safetensors", "click", "rich")
WIDTH = 16


@click.command("doctor")
@model_option
@device_options
@click.option(
    "--parity",
    is_flag=True,
    help="Compare float64 on the CPU with the device, and chunks, batches, threads and strands there.",
)
@click.option("--precision", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True,
              help="Of --parity, on the device.")  # fmt: skip
@click.option("--write-reference", is_flag=True, hidden=True, help="Write the model's reference, as it predicts here.")
def command(model: str, hardware: DeviceOptions, parity: bool, precision: str, write_reference: bool) -> int:
    """Print the versions and devices found, and test the model against its stored reference: 1,000 bases, and no
    probability may differ by more than 0.002.

    With --parity it also computes a made-up sequence of 30,000 bases in float64 on the CPU, and on the device in one
    piece, in chunks, in a batch, on one thread and from the opposite strand, and says how far these differ.

    Exit codes: 0 all is well; 1 a test failed, or there is nothing to test; 3 the device is lacking.

    \b
    Example:
      genoformer doctor --device cuda
      genoformer doctor --device cuda --parity --precision bfloat16
    """
    for name, value in (*versions(), *machine(), *places()):
        click.echo(f"{name + ':':<{WIDTH}} {value}")
    device = hardware.use()
    click.echo(f"{'device:':<{WIDTH}} {device} (asked for: {hardware.device})")
    if write_reference:
        return write(model)
    code = self_test(model, str(device))
    return compare(model, str(device), precision) or code if parity else code


def versions() -> Iterator[tuple[str, str]]:
    """Yield the version of everything that is used."""
    from importlib import metadata

    from genoformer import __version__

    yield "genoformer", __version__
    yield "python", f"{platform.python_version()} on {platform.platform()}"
    for name in DEPENDENCIES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"


def machine() -> Iterator[tuple[str, str]]:
    """Yield processors and devices."""
    import torch

    from genoformer.model.device import keep_freed_memory

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield "cpu", f"{cores} cores, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    yield "cuda", ", ".join(torch.cuda.get_device_name(index) for index in range(count)) or "none"
    yield "mps", "available" if torch.backends.mps.is_available() else "none"
    yield "freed memory", "kept for the next tensor" if keep_freed_memory() else "returned at once (slower on cpu)"


def places() -> Iterator[tuple[str, str]]:
    """Yield where things are kept, and bundled models."""
    import h5py

    from genoformer.formats.cache import cache_folder
    from genoformer.model.checkpoint import ENVIRONMENT, bundled_models, own_folder

    locking = os.environ.get("HDF5_USE_FILE_LOCKING", "not set")
    yield "hdf5", f"{h5py.version.hdf5_version}, HDF5_USE_FILE_LOCKING {locking}"
    folder, lasts = cache_folder()
    yield "cache folder", f"{folder}" if lasts else f"{folder}, for now only: set GENOFORMER_CACHE to one that lasts"
    yield "bundled models", ", ".join(bundled_models()) or "none"
    yield "models folder", str(own_folder() or f"none: {ENVIRONMENT} is not set")


def self_test(model: str, device: str) -> int:
    """Predict the stored test sequence and compare; return the exit code."""
    from genoformer.model.checkpoint import load_model
    from genoformer.model.reference import BASES, TOLERANCE, compare_with_reference

    loaded = load_model(model, device=device)
    difference = compare_with_reference(loaded)
    passed = difference <= TOLERANCE
    click.echo(
        f"{'self-test:':<{WIDTH}} {'passed' if passed else 'FAILED'}: {loaded.checkpoint.name}, {BASES:,} bases on "
        f"{device}, largest difference {difference:.2g}, at most {TOLERANCE:g} allowed"
    )
    if not passed:
        say(f"genoformer: {model} predicts something else here than where it was made; do not trust its results")
    return 0 if passed else 1


def write(model: str) -> int:
    """Write the reference of a model."""
    from genoformer.model.checkpoint import load_model
    from genoformer.model.reference import write_reference

    loaded = load_model(model)
    click.echo(f"written: {write_reference(loaded, loaded.checkpoint.path)}")
    return 0


def compare(model: str, device: str, precision: str) -> int:
    """Compute in many ways and compare; return the exit code."""
    from genoformer.model.checkpoint import load_model
    from genoformer.parity import BASES, parity

    click.echo(f"{'parity:':<{WIDTH}} {BASES:,} bases, largest difference of a probability, and what is allowed")
    failed = 0
    for found in parity(load_model(model, device=device), precision=precision):
        failed += not found.holds
        verdict = "" if found.holds else "  FAILED"
        click.echo(f"  {found.what:<36} {found.difference:8.2g} {found.allowed:8.2g}{verdict}")
    if failed:
        say(f"genoformer: {failed} comparisons failed; do not trust the results of {device} in {precision}")
    return 1 if failed else 0
