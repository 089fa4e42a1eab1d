"""GPUs: what is known of each card, and which one a name means."""

from finefit.catalog.gpu_counts import parse_gpus
from finefit.catalog.gpu_names import GpuMatch, find_gpu
from finefit.catalog.gpu_table import all_gpus

__all__ = ["GpuMatch", "all_gpus", "find_gpu", "parse_gpus"]
