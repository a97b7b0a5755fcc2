"""Foreign file formats, one a module, read (and where it makes sense written) at the edge of the package."""
