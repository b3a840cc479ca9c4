"""What several schedule families share."""
