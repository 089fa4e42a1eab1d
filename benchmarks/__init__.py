"""Benchmarks of finefit; each prints one table: ``python -m benchmarks.NAME [FILE] [--json]``."""
