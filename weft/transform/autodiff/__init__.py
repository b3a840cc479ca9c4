"""Automatic differentiation by source transformation: functions to functions."""
