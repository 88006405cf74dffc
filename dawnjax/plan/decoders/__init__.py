"""Steps, memory and meshes of decoders, from their sizes alone."""
