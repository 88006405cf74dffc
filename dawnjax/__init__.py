"""DawnJAX: a time-to-accuracy benchmark and analysis suite for JAX."""

__version__ = "0.1.0"
