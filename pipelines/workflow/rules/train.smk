"""Genomes, a training with its calibration, its measurement and its card, by the scripts of prokaryote-genes/.

What a training writes is no output of a rule, since Snakemake removes outputs before an attempt and after a failure:
with them would go the checkpoint to resume from, or the best model so far. A flag says that it has ended.
"""

TRAINED = f"{RESULTS}/training/{TRAINING['name']}"
GENOMES = f"{TRAINING['data']}/genomes"


if TRAINING["accessions"]:

    rule training_genomes:
        input:
            accessions=TRAINING["accessions"],
        output:
            manifest=f"{GENOMES}/MANIFEST.tsv",
        log:
            f"{RESULTS}/logs/training/download.log",
        benchmark:
            f"{RESULTS}/benchmarks/training/download.tsv"
        params:
            script=str(RECIPE / "download.py"),
            folder=lambda wildcards, output: str(Path(output.manifest).parent),
            email=words("--email", config["email"]) if config["email"] else "",
        threads: 1
        resources:
            mem_mb=2000,
            runtime=lambda wildcards, attempt: 600 * attempt,
            downloads=1,
        conda:
            "../envs/genoformer.yaml"
        shell:
            "python {params.script:q} -o {params.folder:q} --accessions {input.accessions:q} --split train "
            "--split validation {params.email} 2> {log:q}"


rule training:
    input:
        recipe=TRAINING["recipe"] or [],
        manifest=f"{GENOMES}/MANIFEST.tsv",
    output:
        ended=touch(f"{TRAINED}/trained"),
    log:
        f"{RESULTS}/logs/training/{TRAINING['name']}.log",
    benchmark:
        f"{RESULTS}/benchmarks/training/{TRAINING['name']}.tsv"
    params:
        folder=lambda wildcards, output: str(Path(output.ended).parent),
        data=lambda wildcards, input: str(Path(input.manifest).parent.parent),
        name=TRAINING["name"],
        device=TRAINING["device"],
    threads: TRAINING["threads"]
    resources:
        mem_mb=lambda wildcards, attempt: TRAINING["mem_mb"] * attempt,
        runtime=TRAINING["minutes"],
        gpu=TRAINING["gpus"],
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer train {input.recipe:q} -o {params.folder:q} --data {params.data:q} --name {params.name:q} --resume "
        "--device {params.device:q} --threads {threads} 2>> {log:q}"


rule measurement:
    input:
        ended=f"{TRAINED}/trained",
        manifest=f"{GENOMES}/MANIFEST.tsv",
    output:
        numbers=f"{TRAINED}/work/validation.json",
        tables=f"{TRAINED}/work/validation.md",
    log:
        f"{RESULTS}/logs/training/measurement.log",
    benchmark:
        f"{RESULTS}/benchmarks/training/measurement.tsv"
    params:
        script=str(RECIPE / "measure.py"),
        genomes=lambda wildcards, input: str(Path(input.manifest).parent),
        model=f"{TRAINED}/model",
        folder=lambda wildcards, output: str(Path(output.numbers).parent),
        options=words(*TRAINING["measure_options"]),
    threads: TRAINING["threads"]
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=TRAINING["minutes"],
    conda:
        "../envs/genoformer.yaml"
    shell:
        "python {params.script:q} --genomes {params.genomes:q} --model {params.model:q} --split validation "
        "-o {params.folder:q} --predict=--threads={threads} --predict=--device=cpu {params.options} "
        "> {output.tables:q} 2> {log:q}"


rule card:
    input:
        listed=TRAINING["listed"] or TRAINING["accessions"] or [],
        ended=f"{TRAINED}/trained",
        numbers=f"{TRAINED}/work/validation.json",
    output:
        card=f"{TRAINED}/MODEL_CARD.md",
    log:
        f"{RESULTS}/logs/training/card.log",
    benchmark:
        f"{RESULTS}/benchmarks/training/card.tsv"
    params:
        script=str(RECIPE / "card.py"),
        model=f"{TRAINED}/model",
        notes=TRAINING["notes"] or os.devnull,
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    conda:
        "../envs/genoformer.yaml"
    shell:
        "python {params.script:q} {params.model:q} --measured {input.numbers:q} --notes {params.notes:q} "
        "--accessions {input.listed:q} -o {output.card:q} 2> {log:q}"
