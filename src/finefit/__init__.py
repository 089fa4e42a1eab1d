"""finefit: how big a GPU, for how long, and what will it cost to fine-tune a language model?"""

__version__ = "0.1.0"
