"""What needs torch: the real training code run under fake tensors, as the oracle of the modelled Timeline.

``finefit.lab.trace.trace`` is the entry point (extra ``finefit[trace]``). Nothing here is imported by the
base package.
"""
