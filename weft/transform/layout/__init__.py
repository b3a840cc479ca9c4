"""Data layouts: which one each operator wants, and what changing costs."""
