"""The hardware of a run: tables of devices and prices, counters, memory, compiled programs."""
