"""Systems to plan for, their links and their prices."""
