"""Plan, shards, predictions, merge.

A shard that is stopped leaves PART-of-PARTS.h5.part, which no rule names and so nothing deletes; the next attempt, of
this run or another, goes on from it by --resume. Under its final name a store is always whole.
"""


rule plan:
    input:
        sequences=sequences,
        reference=reference,
    output:
        plan=f"{RESULTS}/{{sample}}/plan.json",
    log:
        f"{RESULTS}/logs/{{sample}}/plan.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/plan.tsv"
    params:
        words=input_words,
        speed=speed_words,
    threads: 1
    resources:
        mem_mb=lambda wildcards, input, attempt: math.ceil(attempt * (1000 + 10 * input.size_mb)),
        runtime=lambda wildcards, input, attempt: math.ceil(attempt * (10 + input.size_mb / 100)),
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer plan {input.sequences:q} {params.words} {params.speed} --device cpu --json > {output.plan:q} "
        "2> {log:q}"


checkpoint shards:
    """One for all samples: many checkpoints make Snakemake slow, and what cannot be read shows before any hours."""
    input:
        plans=expand(f"{RESULTS}/{{sample}}/plan.json", sample=SAMPLES),
    output:
        table=f"{RESULTS}/shards.tsv",
    log:
        f"{RESULTS}/logs/shards.log",
    benchmark:
        f"{RESULTS}/benchmarks/shards.tsv"
    params:
        script=str(SCRIPTS / "shards.py"),
        folder=lambda wildcards, output: str(Path(output.table).parent),
        table=config["samples"],
        bases=PREDICT["shard_bases"],
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    conda:
        "../envs/genoformer.yaml"
    shell:
        "python {params.script:q} {params.folder:q} --samples {params.table:q} --shard-bases {params.bases} "
        "-o {output.table:q} 2> {log:q}"


rule predict:
    input:
        sequences=sequences,
        reference=reference,
        plan=ancient(f"{RESULTS}/{{sample}}/plan.json"),
    output:
        shard=keep(f"{RESULTS}/{{sample}}/shards/{{part}}-of-{{parts}}.h5"),
    log:
        f"{RESULTS}/logs/{{sample}}/predict-{{part}}-of-{{parts}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/predict-{{part}}-of-{{parts}}.tsv"
    params:
        words=input_words,
        speed=speed_words,
        predict=predict_words,
        device=PREDICT["device"],
    threads: PREDICT["threads"]
    resources:
        mem_mb=predict_memory,
        runtime=predict_minutes,
        gpu=PREDICT["gpus"],
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer predict {input.sequences:q} {params.words} {params.speed} {params.predict} "
        "--device {params.device:q} --threads {threads} -o {output.shard:q} 2> {log:q}"


rule merge:
    """Join the shards; a sample that is predicted at once is linked instead, or copied where links cannot be."""
    input:
        shards=shards,
        plan=ancient(f"{RESULTS}/{{sample}}/plan.json"),
    output:
        store=f"{RESULTS}/{{sample}}/{{sample}}.h5",
    log:
        f"{RESULTS}/logs/{{sample}}/merge.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/merge.tsv"
    params:
        parts=lambda wildcards, input: len(input.shards),
        folder=lambda wildcards, input: str(Path(input.shards[0]).parent),
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=minutes(500_000),
    conda:
        "../envs/genoformer.yaml"
    shell:
        "exec 2> {log:q}; if [ {params.parts} = 1 ]; then "
        "ln {params.folder:q}/1-of-1.h5 {output.store:q} || "
        "cp {params.folder:q}/1-of-1.h5 {output.store:q}; else "
        "genoformer merge {params.folder:q}/*-of-{params.parts}.h5 -o {output.store:q}; fi"
