"""What the schedules of all families share."""
