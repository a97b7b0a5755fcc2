"""The model: inputs, encoder, heads, checkpoints."""
