"""Official results as entries, and runs as official results: DAWNBench and MLPerf Training."""
