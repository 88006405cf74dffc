"""Estimates for absent hardware: an experiment's step time, epochs, time to accuracy and cost."""
