"""Settings of the networks, which need no JAX: a command's flags and help are made of them."""
