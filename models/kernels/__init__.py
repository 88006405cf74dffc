"""Forms of layers for one platform that were measured to pay; each layer has its plain form too."""
