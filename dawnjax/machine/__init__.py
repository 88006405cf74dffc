"""The machine: published numbers of devices and what they cost, as tables with sources."""
