"""The hardware that a run has: devices, counters, memory, compiled programs."""
