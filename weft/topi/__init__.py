"""The computes of operators: functions from te tensors to te tensors, for all targets."""
