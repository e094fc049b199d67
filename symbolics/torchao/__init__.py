"""The `torchao` dialect: operators registered by the torchao library, which is not imported."""
