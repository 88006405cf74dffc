"""Random changes of images on the device, inside the compiled step."""
