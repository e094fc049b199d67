"""The operators of torchvision, which a model calls under the namespace `torchvision`."""
