"""Folders of peft and diffusers."""
