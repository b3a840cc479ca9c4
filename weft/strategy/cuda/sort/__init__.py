"""Sorting along an axis: ``sort``, ``argsort``, ``topk``."""
