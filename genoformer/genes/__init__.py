"""Genes from the probabilities of codon positions: candidates, the best set of them, and their proteins."""

from genoformer.genes.calls import Called, CallSettings, call_genes, call_many
from genoformer.genes.candidates import Scoring
from genoformer.genes.chain import Rules
from genoformer.genes.codons import genetic_code
from genoformer.genes.gene import Gene

__all__ = ["CallSettings", "Called", "Gene", "Rules", "Scoring", "call_genes", "call_many", "genetic_code"]
