"""Command line and web: what people start."""
