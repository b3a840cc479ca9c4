"""What operators compute: functions from te tensors to te tensors, for every target alike."""
