"""Alleles of VCF and BCF files, scored."""


rule score:
    input:
        calls=lambda wildcards: CALLS[wildcards.calls]["vcf"],
        fasta=lambda wildcards: CALLS[wildcards.calls]["fasta"],
    output:
        scored=f"{RESULTS}/variants/{{calls}}.vcf.gz",
    log:
        f"{RESULTS}/logs/variants/{{calls}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/variants/{{calls}}.tsv"
    params:
        model=config["model"],
        window=config["variants"]["window"],
        options=words(*config["variants"]["options"]),
        device=PREDICT["device"],
    threads: PREDICT["threads"]
    resources:
        mem_mb=lambda wildcards, input, attempt: math.ceil(attempt * (2000 + 10 * input.size_mb)),
        runtime=lambda wildcards, attempt: attempt * config["variants"]["minutes"],
        gpu=PREDICT["gpus"],
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer variants {input.calls:q} --fasta {input.fasta:q} --model {params.model:q} --window {params.window} "
        "--device {params.device:q} --threads {threads} {params.options} --overwrite -o {output.scored:q} 2> {log:q}"
