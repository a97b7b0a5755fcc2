"""How good predictions are, where something true is known, and one page about each sample."""


rule evaluate:
    input:
        store=f"{RESULTS}/{{sample}}/{{sample}}.h5",
        sequences=sequences,
        reference=reference,
        truth=truth,
        plan=ancient(f"{RESULTS}/{{sample}}/plan.json"),
    output:
        numbers=f"{RESULTS}/{{sample}}/{{sample}}.evaluation.json",
        text=f"{RESULTS}/{{sample}}/{{sample}}.evaluation.txt",
    log:
        f"{RESULTS}/logs/{{sample}}/evaluate.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/evaluate.tsv"
    params:
        words=genes_words,
    threads: 1
    resources:
        mem_mb=memory(30),
        runtime=minutes(50_000),
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer evaluate {input.store:q} --truth {input.truth:q} {params.words} --json {output.numbers:q} "
        "> {output.text:q} 2> {log:q}"


rule report:
    input:
        store=f"{RESULTS}/{{sample}}/{{sample}}.h5",
        sequences=sequences,
        reference=reference,
        genes=f"{RESULTS}/{{sample}}/{{sample}}.gff.gz" if "gff3" in config["exports"] else [],
        truth=truth,
        plan=ancient(f"{RESULTS}/{{sample}}/plan.json"),
    output:
        page=f"{RESULTS}/{{sample}}/{{sample}}.html",
    log:
        f"{RESULTS}/logs/{{sample}}/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/report.tsv"
    params:
        words=genes_words,
        genes=lambda wildcards, input: words("--genes", input.genes) if input.genes else "",
        truth=lambda wildcards, input: words("--truth", input.truth) if input.truth else "",
        size=config["report"]["megabytes"],
    threads: 1
    resources:
        mem_mb=memory(30),
        runtime=minutes(50_000),
    conda:
        "../envs/genoformer.yaml"
    shell:
        "genoformer report {input.store:q} {params.words} {params.genes} {params.truth} --size {params.size} "
        "-o {output.page:q} 2> {log:q}"
