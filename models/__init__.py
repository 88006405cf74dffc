"""Model families, one file each: a frozen config and the Flax NNX module that it builds."""
