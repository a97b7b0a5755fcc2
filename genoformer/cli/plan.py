"""genoformer plan: what predicting an input would take, and everything that would stop it."""

from __future__ import annotations

import json
from typing import Any

import click

from genoformer.cli.checks import Checks, check_run, free_bytes, model_tracks
from genoformer.cli.options import (
    DeviceOptions,
    InputOptions,
    OutputOptions,
    WholeOptions,
    WindowOptions,
    batch_option,
    chunk_option,
    device_options,
    input_options,
    model_option,
    output_options,
    project_option,
    shard_option,
    whole_options,
    window_options,
)
from genoformer.cli.progress import counted, describe_plan, duration, quiet_pipe, size
from genoformer.errors import printable


@click.command("plan")
@input_options
@output_options(required=False, help="Check this place too, and how much space there is.")
@model_option
@window_options
@whole_options
@chunk_option
@batch_option
@shard_option
@project_option
@device_options
@click.option("--speed", type=click.FloatRange(min=0, min_open=True), default=60_000, show_default=True,
              metavar="BASES/S", help="To reckon the time with; the default is for 2 CPU cores with strand averaging, "
                                      "double it without.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(
    source: InputOptions,
    target: OutputOptions,
    model: str,
    cut: WindowOptions,
    whole: WholeOptions,
    chunk_size: int | None,
    batch_size: int,
    shard: str | None,
    project: bool,
    hardware: DeviceOptions,
    speed: float,
    as_json: bool,
) -> int:
    """Read INPUT, check all that predict would check first, and print the windows, what becomes of each base, and
    the expected time, memory and disk. Nothing is predicted or written.

    Every problem that would stop predict is listed on standard error, and the exit code is that of the first.

    \b
    Example:
      genoformer plan genome.fa.gz -o genome.h5
    """
    from genoformer.cli import exit_code
    from genoformer.store import Shard

    part = None if shard is None else Shard.parse(shard)
    whole.check(cut, project=project)
    checks = check_run(
        source,
        cut,
        model=model,
        device=hardware.device,
        target=target,
        collect=True,
        whole=whole.whole_sequence,
        shard=part,
        project=project,
    )
    computed: dict[str, Any] = {"speed": speed, "chunk_size": chunk_size, "batch_size": batch_size, "shard": part}
    computed["offload"] = whole.offload
    found = gather(checks, target, computed)
    with quiet_pipe():
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            for line in [*(describe_plan(checks.plan) if checks.plan else ()), *describe(found)]:
                click.echo(printable(line))
    for problem in checks.problems:
        click.echo(f"genoformer: {type(problem).__name__}: {problem}", err=True)
    return exit_code(checks.problems[0]) if checks.problems else 0


def gather(checks: Checks, target: OutputOptions, computed: dict[str, Any]) -> dict[str, Any]:
    """Return everything found, as plain values; what a problem kept from being found is left out.

    ``computed`` says how, in the words of `genoformer.cli.estimates.estimate`.
    """
    from genoformer.cli.estimates import estimate, planned_bases, whole_notes
    from genoformer.model.streaming import DEVICE_CHUNK

    plan, checkpoint = checks.plan, checks.checkpoint
    found: dict[str, Any] = {"problems": [{"kind": type(e).__name__, "message": str(e)} for e in checks.problems]}
    if plan is not None:
        table = plan.sequences
        found |= {
            "input": plan.source,
            "sequences": len(table),
            "windows": len(plan.owned),
            "window": plan.described_window,
            "overlap": plan.overlap,
            "bases": plan.accounting._asdict(),
            "letters": plan.letters._asdict(),
            "left_out": plan.left_out,
            "short": plan.short,
            "made_by": plan.made_by,
            "circular": [table.names[index] for index in plan.origins],
            "skipped": [
                {"name": name, "status": status, "reason": reason}
                for name, status, reason in zip(table.names, table.status, table.reason, strict=True)
                if reason
            ],
        }
    if plan is not None and (shard := computed["shard"]) is not None:
        found["shard"] = {
            "number": shard.number,
            "count": shard.count,
            "windows": len(plan.owned[shard.select(plan.blocks)]),
            "bases": planned_bases(plan, shard),
        }
    if checkpoint is not None:
        found["model"] = {"name": checkpoint.name, "path": str(checkpoint.path), "sha256": checkpoint.sha256}
    if checks.device is not None:
        found["device"] = str(checks.device)
    if target.output is not None:
        found["output"] = {"path": str(target.output), "free_bytes": free_bytes(target.output)}
    if plan is not None and checkpoint is not None:
        channels = sum(len(track.channels) for track in model_tracks(checkpoint)) + checks.project
        if computed["chunk_size"] is None and checks.device is not None and checks.device.type != "cpu":
            computed = {**computed, "chunk_size": DEVICE_CHUNK if plan.whole else 0}
        taken = estimate(plan, checkpoint.config, channels=channels, **computed)
        found["notes"] = list(whole_notes(plan, checkpoint.config))
        found["estimate"] = {**taken._asdict(), "bases_per_second": computed["speed"]}
    return found


def describe(found: dict[str, Any]) -> list[str]:
    """Say in lines what was found beyond the input."""
    lines = [f"  {note}" for note in found.get("notes", ())]
    if "shard" in found:
        part = found["shard"]
        lines.append(
            f"shard {part['number']}/{part['count']}: {part['bases']:,} bases in {counted(part['windows'], 'window')}, "
            "of which time and disk are told"
        )
    if "model" in found:
        lines.append(f"model: {found['model']['name']}, there and intact (sha256 {found['model']['sha256'][:12]})")
    if "device" in found:
        lines.append(f"device: {found['device']}")
    if "estimate" in found:
        taken = found["estimate"]
        lines += [
            f"time: about {duration(taken['seconds'])}, assuming {taken['bases_per_second']:,.0f} bases/s (--speed)",
            f"memory: about {size(taken['memory'])}, an estimate from window, chunk and model",
            f"disk: about {size(taken['disk_typical'])}, at most {size(taken['disk_most'])}",
        ]
        if taken["temporary"]:
            lines.append(f"temporary file (TMPDIR): {size(taken['temporary'])}")
    free = found.get("output", {}).get("free_bytes")
    if free is not None:
        lines.append(f"output: {found['output']['path']}, {size(free)} free")
        if "estimate" in found and free < found["estimate"]["disk_most"]:
            lines.append("  note: the free space may not suffice")
    return lines
