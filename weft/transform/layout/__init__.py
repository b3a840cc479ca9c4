"""Data layouts: the layouts that operators prefer, and the cost of conversions."""
