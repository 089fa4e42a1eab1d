"""Verdict, remedies and ranked offers: the answer, assembled from memory, speed and cost."""
