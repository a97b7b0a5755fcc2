"""Measurements of the attention core: speed and memory beside other libraries, and accuracy beside exact attention."""
