"""Where the time of a run went: traces, compiled programs, communication, utilization, roofline."""
