"""What can be asked for."""


rule annotate:
    """Everything of every sample; what is made if nothing is asked for."""
    default_target: True
    input:
        [path for sample in SAMPLES for path in results_of(sample)],


rule train:
    """A trained model, its evaluation and its card."""
    input:
        training_results,


rule variants:
    """Every VCF, scored."""
    input:
        [f"{RESULTS}/variants/{name}.vcf.gz" for name in CALLS],


localrules:
    annotate,
    train,
    variants,
