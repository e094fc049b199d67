"""Collects the cases when it is imported, so that the processes of all jobs share them."""

from .cases import all_cases

all_cases()
