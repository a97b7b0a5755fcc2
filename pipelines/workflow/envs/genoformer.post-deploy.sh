#!/usr/bin/env bash
# Snakemake runs this in the new environment.
set -euo pipefail
pip install --no-deps --no-build-isolation \
    "${GENOFORMER_SOURCE:?set it to the folder of genoformer, or to a wheel of it, and start again}"
