"""Programs on several devices: devices of steps, copies between memories, order, and waits."""
