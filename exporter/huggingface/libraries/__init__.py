"""Folders of other libraries than transformers: timm, peft and diffusers."""
