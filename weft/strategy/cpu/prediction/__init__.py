"""The time of a lowered kernel, predicted from its loops and the machine model."""
