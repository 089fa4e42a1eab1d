"""Benchmarks of finefit; each prints one table: ``python -m benchmarks.NAME [FILE] [--json]``."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a figure never depends on what a Hub answers today
