"""Attention: scores, softmax and the second product in one kernel."""
