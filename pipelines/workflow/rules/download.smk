"""Genomes by accession from NCBI, through the script of the recipe: what it has fetched it does not fetch again."""


rule download:
    output:
        fasta=f"{RESULTS}/downloads/{{sample}}/train/{{sample}}.fa.gz",
        annotation=f"{RESULTS}/downloads/{{sample}}/train/{{sample}}.gff.gz",
    log:
        f"{RESULTS}/logs/{{sample}}/download.log",
    benchmark:
        f"{RESULTS}/benchmarks/{{sample}}/download.tsv"
    params:
        script=str(RECIPE / "download.py"),
        folder=lambda wildcards, output: str(Path(output.fasta).parent.parent),
        row=lambda wildcards: f"train\t{wildcards.sample}\t{SAMPLES[wildcards.sample]['accession']}",
        email=words("--email", config["email"]) if config["email"] else "",
    threads: 1
    resources:
        mem_mb=2000,
        runtime=lambda wildcards, attempt: 120 * attempt,
        downloads=1,
    conda:
        "../envs/genoformer.yaml"
    shell:
        "exec 2> {log:q}; mkdir -p {params.folder:q} && "
        "printf 'split\\tname\\taccessions\\n%s\\n' {params.row:q} > {params.folder:q}/accessions.tsv && "
        "python {params.script:q} -o {params.folder:q} --accessions {params.folder:q}/accessions.tsv "
        "{params.email}"
