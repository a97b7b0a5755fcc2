"""Genes, proteins, intervals and tracks of a merged store."""


rule genes:
    input:
        store=f"{RESULTS}/{{sample}}/{{sample}}.h5",
        sequences=sequences,
        reference=reference,
        plan=ancient(f"{RESULTS}/{{sample}}/plan.json"),
    output:
        genes=f"{RESULTS}/{{sample}}/{{sample}}.{{kind}}.gz",
    wildcard_constraints:
        kind="gff|faa|fna",
    log:
        f"{RESULTS}/logs/{{sample}}/export-{{kind}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/export-{{kind}}.tsv"
    params:
        to=lambda wildcards: {"gff": "gff3"}.get(wildcards.kind, wildcards.kind),
        words=genes_words,
        options=words(*config["gene_options"]),
    threads: 1
    resources:
        mem_mb=memory(30),
        runtime=minutes(50_000),
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer export {input.store:q} --to {params.to} {params.words} {params.options} --overwrite "
        "-o {output.genes:q} 2> {log:q}"


rule bed:
    input:
        store=f"{RESULTS}/{{sample}}/{{sample}}.h5",
        plan=ancient(f"{RESULTS}/{{sample}}/plan.json"),
    output:
        intervals=f"{RESULTS}/{{sample}}/{{sample}}.bed.gz",
    log:
        f"{RESULTS}/logs/{{sample}}/export-bed.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/export-bed.tsv"
    params:
        words=value_words,
        options=words(*config["bed_options"]),
    threads: 1
    resources:
        mem_mb=memory(2),
        runtime=minutes(200_000),
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer export {input.store:q} --to bed {params.words} {params.options} --overwrite "
        "-o {output.intervals:q} 2> {log:q}"


rule bigwig:
    input:
        store=f"{RESULTS}/{{sample}}/{{sample}}.h5",
        plan=ancient(f"{RESULTS}/{{sample}}/plan.json"),
    output:
        track=f"{RESULTS}/{{sample}}/{{sample}}.{{channel}}.bw",
    log:
        f"{RESULTS}/logs/{{sample}}/export-{{channel}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/export-{{channel}}.tsv"
    params:
        words=value_words,
    threads: 1
    resources:
        mem_mb=memory(2),
        runtime=minutes(200_000),
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer export {input.store:q} --to bigwig {params.words} --channel {wildcards.channel:q} --overwrite "
        "-o {output.track:q} 2> {log:q}"
