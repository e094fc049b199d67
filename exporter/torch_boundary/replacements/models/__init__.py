"""Code of transformers, torchvision and modules of torch, in a form that a capture can record."""
