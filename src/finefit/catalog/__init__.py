"""Facts shipped as data files, and their loaders. Each file is read when first asked for, never at import."""
