"""``python -m genoformer``."""

from genoformer.cli import main

main()
